"""One rank's connection as the engine sees it: bytes in, hello, answers and ends of copies out."""

import asyncio
from typing import Protocol, cast

import msgspec

from workers.link.errors import BadFrame
from workers.link.frames import MAX_FRAME_BYTES, MAX_HELLO_BYTES, FrameSplitter, frame
from workers.link.wire import Answer, CopyAnswer, Hello, Welcome, decode_answer, decode_hello, encode

_HELLO_TIMEOUT_S = 10.0


class Owner(Protocol):
    """Who takes what comes in; `engine_side.PlanLink`."""

    def take_hello(self, connection: "RankConnection", hello: Hello) -> str | None: ...
    def take_answer(self, rank: int, answer: Answer) -> None: ...
    def take_copy(self, rank: int, answer: CopyAnswer) -> None: ...
    def lost(self, rank: int, reason: str) -> None: ...


class RankConnection(asyncio.Protocol):
    """Before the hello a peer may send 4 KiB within 10 s; after it, frames up to the common bound."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._splitter = FrameSplitter(MAX_HELLO_BYTES)
        self._transport: asyncio.Transport | None = None
        self._hello_deadline: asyncio.TimerHandle | None = None
        self._rank: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._hello_deadline = asyncio.get_running_loop().call_later(_HELLO_TIMEOUT_S, self.hang_up)

    def data_received(self, data: bytes) -> None:
        self._splitter.feed(data)
        try:
            while self._transport is not None and (payload := self._splitter.next_payload()) is not None:
                self._take(payload)
        except (BadFrame, msgspec.DecodeError) as error:
            self._lose(f"sent what is no answer ({error})")

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose("closed its link" if exc is None else f"lost its link ({exc})")

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def hang_up(self) -> None:
        """Close without telling the owner. Idempotent. What a rank has not read yet is lost to it; a refusal is not."""
        if self._hello_deadline is not None:
            self._hello_deadline.cancel()
        if self._transport is not None:
            if self._rank is None:
                self._transport.close()
            else:  # `close` would wait for a rank that reads no more to take its plans
                self._transport.abort()
            self._transport = None
        self._rank = None

    def _take(self, payload: bytes) -> None:
        if self._rank is not None:
            answer = decode_answer(payload)
            if isinstance(answer, CopyAnswer):
                self._owner.take_copy(self._rank, answer)
            else:
                self._owner.take_answer(self._rank, answer)
            return
        hello = decode_hello(payload)
        refusal = self._owner.take_hello(self, hello)
        if refusal is not None:
            self.write(frame(encode(Welcome(refusal=refusal))))
        if refusal != "":
            self.hang_up()
            return
        self._rank = hello.rank
        self._splitter.limit_bytes = MAX_FRAME_BYTES
        if self._hello_deadline is not None:
            self._hello_deadline.cancel()

    def _lose(self, reason: str) -> None:
        rank = self._rank
        self.hang_up()
        if rank is not None:
            self._owner.lost(rank, reason)
