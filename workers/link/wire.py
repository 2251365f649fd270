"""The messages between an engine and its ranks, as msgpack. Plans are `scheduler.plan.StepPlan` itself.

rank -> engine: Hello, once. engine -> rank: Welcome, once. rank -> engine: Answer with step READY when its model is
loaded; then a StepPlan down and an Answer up for every step, in order. Unasked, a CopyAnswer up when a copy has ended;
never before the Answers to all plans before the copy's own.
"""

from typing import Final
from zlib import crc32

import msgspec

from scheduler.plan import CopyOutcome, StepPlan

VERSION = 2
READY: Final = -1
_MAX_ERROR_CHARS = 4000


class Hello(msgspec.Struct, frozen=True):
    """`token` is the secret the rank was started with."""

    version: int
    token: str
    rank: int


class Welcome(msgspec.Struct, frozen=True):
    """`refusal` is empty when the rank is taken."""

    refusal: str = ""


class Answer(msgspec.Struct, frozen=True, array_like=True, tag="step"):
    """What a rank did. `error` is empty unless the step failed; the rank ends after an error.

    `tokens` is filled by rank 0 only, `digest` by all: over the plan's bytes and the tokens this rank sampled.
    """

    step: int
    digest: int = 0
    tokens: tuple[tuple[int, int], ...] = ()
    step_s: float = 0.0
    error: str = ""


class CopyAnswer(msgspec.Struct, frozen=True, array_like=True, tag="copy"):
    """How a copy ended on one rank. `reason` is empty when it is done."""

    copy_id: int
    outcome: CopyOutcome
    reason: str = ""
    seconds: float = 0.0
    num_bytes: int = 0


_encoder = msgspec.msgpack.Encoder()
_plan_decoder = msgspec.msgpack.Decoder(StepPlan)
_hello_decoder = msgspec.msgpack.Decoder(Hello)
_welcome_decoder = msgspec.msgpack.Decoder(Welcome)
_answer_decoder = msgspec.msgpack.Decoder(Answer | CopyAnswer)

encode = _encoder.encode
decode_plan = _plan_decoder.decode
decode_hello = _hello_decoder.decode
decode_welcome = _welcome_decoder.decode
decode_answer = _answer_decoder.decode


def digest(plan_bytes: bytes, tokens: tuple[tuple[int, int], ...]) -> int:
    """What ranks must agree on: the plan as received and the tokens as sampled."""
    return crc32(_encoder.encode(tokens), crc32(plan_bytes))


def error_text(error: BaseException) -> str:
    """One bounded line for an error answer; never empty."""
    return one_line(f"{type(error).__name__}: {error}")


def one_line(text: str) -> str:
    """`text` as one bounded line."""
    return " ".join(text.split())[:_MAX_ERROR_CHARS]
