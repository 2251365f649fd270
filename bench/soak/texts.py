"""Requests that draw with the same seed on the same prompt must say the same, as far as both go."""

from collections.abc import Iterable

from bench.soak.visitor import Visit

# What a decoder says for bytes of a character that has not come to its end.
UNFINISHED = "\N{REPLACEMENT CHARACTER}"


def contradictions(visits: Iterable[Visit]) -> list[str]:
    """One line for each text that is no beginning of a longer one of the same prompt and seed."""
    longest: dict[tuple[tuple[int, ...], int], tuple[str, str]] = {}
    told = [
        ((visit.errand.prompt, visit.errand.seed + choice), text, f"request {visit.errand.number}, choice {choice}")
        for visit in visits
        for choice, text in visit.texts.items()
    ]
    found = []
    for key, text, name in sorted(told, key=lambda each: -len(each[1])):
        first, first_name = longest.setdefault(key, (text, name))
        if not first.startswith(text.rstrip(UNFINISHED)):
            found.append(f"{name} does not begin as {first_name} of the same prompt and seed")
    return found
