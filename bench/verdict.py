"""What the demo claims, checked one by one against what happened. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.chat import ChatRun, ChatState


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A claim, whether it held, and the numbers behind it."""

    claim: str
    held: bool
    detail: str


def judge_parking(runs: Sequence[ChatRun], alone: Mapping[str, ChatRun]) -> list[Check]:
    """All end in full and unchanged, some were parked, the first in rank never was and ended first."""
    best = max(runs, key=lambda run: run.chat.priority)
    cut = [run for run in runs if not is_whole(run)]
    changed = [run for run in runs if run.text != alone[run.chat.name].text]
    num_parks = sum(run.parks for run in runs)
    miscounted = [run for run in runs if run.parks != run.parks_seen]
    first = min(runs, key=lambda run: run.ended if run.ended is not None else float("inf"))
    return [
        Check(claim="every chat ends with 200 and its full length", held=not cut, detail=_names(cut, "cut", len(runs))),
        Check(
            claim="every text is byte-equal to the same chat alone",
            held=not changed and all(is_whole(run) for run in alone.values()),
            detail=_names(changed, "changed", len(runs)),
        ),
        Check(claim="the pool overflowed and chats were parked", held=num_parks > 0, detail=f"{num_parks} parks"),
        Check(
            claim="every park was announced in its stream",
            held=not miscounted,
            detail=_names(miscounted, "not announced", len(runs)),
        ),
        Check(
            claim=f"the chat with priority {best.chat.priority} is never parked",
            held=best.parks == best.parks_seen == 0,
            detail=f"{best.chat.name}: {best.parks} parks",
        ),
        Check(
            claim=f"the chat with priority {best.chat.priority} ends first",
            held=first is best,
            detail=f"{first.chat.name} ended first",
        ),
    ]


def judge_no_parking(runs: Sequence[ChatRun]) -> list[Check]:
    """Without parking a full pool costs chats: each of them is told so, and none ends short in silence."""
    refused = [run for run in runs if run.state is ChatState.REFUSED]
    silent = [run for run in refused if not names_the_pool(run.error)]
    short = [run for run in runs if run.state is ChatState.DONE and not is_whole(run)]
    return [
        Check(
            claim="the pool overflowed and chats were refused",
            held=bool(refused),
            detail=f"{len(refused)} of {len(runs)} refused",
        ),
        Check(
            claim="each refusal names the KV pool",
            held=not silent,
            detail=_names(silent, "refused without a reason", len(runs)),
        ),
        Check(claim="no chat ended short in silence", held=not short, detail=_names(short, "short", len(runs))),
    ]


def is_whole(run: ChatRun) -> bool:
    return (
        run.state is ChatState.DONE
        and run.status == 200
        and run.finish_reason == "length"
        and run.completion_tokens == run.chat.max_tokens
    )


def names_the_pool(error: str | None) -> bool:
    return error is not None and ("KV" in error or "pool" in error.lower())


def _names(runs: Sequence[ChatRun], what: str, total: int) -> str:
    if not runs:
        return f"{total} of {total}"
    return f"{what}: " + ", ".join(run.chat.name for run in runs)
