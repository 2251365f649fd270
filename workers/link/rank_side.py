"""A rank's end of the plan link: connect, build the rank, then execute plans in order until the engine hangs up.

Blocking, on the thread that calls `serve_rank`. A second thread sleeps until the engine is gone, to break a collective
that the first may be waiting in. The rank's copy thread sends the ends of copies by itself, between other frames.
"""

import logging
import select
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from scheduler.plan import CopyOutcome, StepPlan
from workers.link.endpoint import connect, parse_endpoint
from workers.link.errors import LinkClosed, LinkRefused
from workers.link.frames import FrameSplitter, frame
from workers.link.wire import (
    READY,
    VERSION,
    Answer,
    CopyAnswer,
    Hello,
    decode_plan,
    decode_welcome,
    digest,
    encode,
    error_text,
    one_line,
)

log = logging.getLogger(__name__)

_READ_BYTES = 256 * 1024


class StepAnswer(Protocol):
    """What a rank says of a step; `workers.rank.RankAnswer` is one. `tokens` is filled on every rank."""

    @property
    def step(self) -> int: ...
    @property
    def tokens(self) -> tuple[tuple[int, int], ...]: ...
    @property
    def step_s(self) -> float: ...


class CopyEnd(Protocol):
    """What a rank says of a copy; `workers.copier.CopyDone` is one. `num_bytes` are those of this rank."""

    @property
    def copy_id(self) -> int: ...
    @property
    def outcome(self) -> CopyOutcome: ...
    @property
    def reason(self) -> str: ...
    @property
    def seconds(self) -> float: ...
    @property
    def num_bytes(self) -> int: ...


OnCopy = Callable[[CopyEnd], None]


class PlanRunner(Protocol):
    """What executes plans; `workers.rank.Rank` is one."""

    def execute(self, plan: StepPlan) -> StepAnswer: ...
    def close(self) -> None: ...


Build = Callable[[OnCopy], PlanRunner]
"""Loads a model. The rank calls what it is given, on any thread, once for every copy of a plan; no more once closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkAddress:
    """How a rank finds its engine and shows that it belongs to it."""

    endpoint: str
    token: str
    rank: int
    connect_timeout_s: float = 30.0


def serve_rank(address: LinkAddress, build: Build, on_hangup: Callable[[], None]) -> None:
    """Serve one engine; returns when it hangs up, and closes the rank.

    `build` loads the model; its failure, like one of a step, is sent to the engine and raised here. `on_hangup` is
    called from another thread as soon as the engine is gone; what then fails here is no error any more.
    Raises LinkRefused, LinkClosed (nobody listens), BadFrame.
    """
    link = connect(parse_endpoint(address.endpoint), address.connect_timeout_s)
    frames = _Frames(link)
    try:
        _introduce(frames, address)
        with _HangupWatch(link, on_hangup) as watch:
            _build_and_loop(frames, address.rank, build, watch)
    finally:
        link.close()


def _introduce(frames: "_Frames", address: LinkAddress) -> None:
    frames.send(encode(Hello(version=VERSION, token=address.token, rank=address.rank)))
    payload = frames.receive()
    if payload is None:
        raise LinkRefused(f"the engine closed the link to rank {address.rank} without a word: is the token right?")
    if refusal := decode_welcome(payload).refusal:
        raise LinkRefused(f"the engine refused rank {address.rank}: {refusal}")


def _build_and_loop(frames: "_Frames", rank: int, build: Build, watch: "_HangupWatch") -> None:
    step = READY
    runner: PlanRunner | None = None
    try:
        runner = build(lambda end: frames.send_if_open(encode(_copy_answer(end))))
        frames.send(encode(Answer(step=READY)))
        while (payload := frames.receive()) is not None:
            plan = decode_plan(payload)
            step = plan.step
            frames.send(encode(_answer(runner.execute(plan), payload, rank)))
    except BaseException as error:
        if watch.gone or isinstance(error, LinkClosed):
            log.info("rank %d ends at step %d: the engine has hung up (%s)", rank, step, error_text(error))
            return
        log.exception("rank %d failed at step %d", rank, step)
        frames.send_if_open(encode(Answer(step=step, error=error_text(error))))
        raise
    finally:
        if runner is not None:
            runner.close()


def _answer(done: StepAnswer, plan_bytes: bytes, rank: int) -> Answer:
    return Answer(
        step=done.step,
        digest=digest(plan_bytes, done.tokens),
        tokens=done.tokens if rank == 0 else (),
        step_s=done.step_s,
    )


def _copy_answer(end: CopyEnd) -> CopyAnswer:
    return CopyAnswer(
        copy_id=end.copy_id,
        outcome=end.outcome,
        reason=one_line(end.reason),
        seconds=end.seconds,
        num_bytes=end.num_bytes,
    )


class _Frames:
    """Any thread may send, whole frames. An engine that reads late holds all of them up; one that is gone, none."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._splitter = FrameSplitter()
        self._sending = threading.Lock()

    def send(self, payload: bytes) -> None:
        data = frame(payload)
        try:
            with self._sending:
                self._link.sendall(data)
        except OSError as error:
            raise LinkClosed(f"the engine is gone: {error}") from error

    def send_if_open(self, payload: bytes) -> None:
        try:
            self.send(payload)
        except LinkClosed as error:
            log.info("an answer was lost: %s", error)

    def receive(self) -> bytes | None:
        """The next payload; None when the engine has hung up."""
        while (payload := self._splitter.next_payload()) is None:
            try:
                data = self._link.recv(_READ_BYTES)
            except OSError:
                return None
            if not data:
                return None
            self._splitter.feed(data)
        return payload


class _HangupWatch:
    """A thread that sleeps until the peer hangs up. It asks for no data, so a plan's arrival does not wake it."""

    def __init__(self, link: socket.socket, on_hangup: Callable[[], None]) -> None:
        self._link = link
        self._on_hangup = on_hangup
        self._finished = False
        self.gone = False
        self._thread = threading.Thread(target=self._watch, name="hangup-watch", daemon=True)

    def __enter__(self) -> "_HangupWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._finished = True
        try:
            self._link.shutdown(socket.SHUT_RDWR)  # wakes our own poll
        except OSError:
            log.debug("the link was down already")
        self._thread.join()

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._link.fileno(), select.POLLRDHUP)
        poll.poll()
        if not self._finished:
            self.gone = True
            self._on_hangup()
