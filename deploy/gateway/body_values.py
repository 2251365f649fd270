"""How much there is in a JSON body, counted before it is parsed: a value costs far more time and memory than its bytes.

Eight megabytes of `[],[],...` are three million lists, and seconds in which the interpreter does nothing else. Counting
takes milliseconds, and only what stands outside of strings counts.
"""

from deploy.errors import BodyTooLarge

MAX_VALUES = 2**20
MAX_FIELDS = 2**17


def require_few_values(body: bytes) -> None:
    """Raises `BodyTooLarge` above `MAX_VALUES` values, or `MAX_FIELDS` objects, lists and named fields together. A body
    that is no JSON is counted up to the place where a parser gives up."""
    if _num_values(body) <= MAX_FIELDS:  # with what strings hold, so it is an upper bound of both
        return
    # Without escapes each quote begins or ends a string, and every second piece lies outside.
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') > 2 * MAX_VALUES:
        raise _too_many(MAX_VALUES, "values")
    outside = b"".join(plain.split(b'"')[::2])
    if _num_values(outside) > MAX_VALUES:
        raise _too_many(MAX_VALUES, "values")
    if _num_fields(outside) > MAX_FIELDS:
        raise _too_many(MAX_FIELDS, "objects, lists and fields")


def _num_values(text: bytes) -> int:
    return text.count(b",") + _num_fields(text)


def _num_fields(text: bytes) -> int:
    return text.count(b"[") + text.count(b"{") + text.count(b":")


def _too_many(most: int, what: str) -> BodyTooLarge:
    return BodyTooLarge(f"the request body holds more than {most} {what}; send a smaller one", code="body_too_large")
