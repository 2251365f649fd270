"""A backend played by hand, a small model, and a client that reads a response piece by piece and can hang up."""

import asyncio
import dataclasses
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

from fastapi import FastAPI
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from deploy.gateway import ServedModel
from deploy.gateway.mailbox import Mailbox
from deploy.text import ChatTemplate, TextTokenizer
from scheduler.admission import HoldTerms, RequestRow, UnknownRequest
from scheduler.messages import FinishReason, Submission, TokenEvent

TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
SPECIALS = ("<|bos|>", "<|im_start|>", "<|im_end|>")
EOS = 258  # <|im_end|>
Body = Callable[..., dict[str, object]]


def byte_tokenizer(*, adds_bos: bool = False) -> Tokenizer:
    """Token i is byte i, for i < 256; then the special tokens, then one for a whole word."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    by_byte = {_byte_of(char): char for char in alphabet}
    vocab = {by_byte[byte]: byte for byte in range(256)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIALS])
    tokenizer.add_tokens([AddedToken("<think>", special=False)])
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<|bos|> $A", special_tokens=[("<|bos|>", 256)])
    return tokenizer


def _byte_of(char: str) -> int:
    """The alphabet writes printable bytes as themselves and the 68 others, in order, from code point 256 on."""
    code = ord(char)
    return code if code < 256 else [*range(0x21), *range(0x7F, 0xA1), 0xAD][code - 256]


def served_model(
    *, max_model_len: int = 200, pool_tokens: int = 1_000, page_size: int = 1, adds_bos: bool = False
) -> ServedModel:
    return ServedModel(
        model_id="org/tiny",
        tokenizer=TextTokenizer(byte_tokenizer(adds_bos=adds_bos)),
        template=ChatTemplate(TEMPLATE),
        max_model_len=max_model_len,
        pool_tokens=pool_tokens,
        page_size=page_size,
        vocab_size=300,
        stop_token_ids=(EOS,),
        created=1_700_000_000,
    )


class HandPlayedBackend:
    """Answers as the test says: `script` gives the events of a submission, or the test sends them one by one."""

    gateway_id = "gateway-1"

    def __init__(self, script: Callable[[Submission], Sequence[TokenEvent]] | None = None) -> None:
        self.script = script
        self.submissions: list[Submission] = []
        self.submitted = asyncio.Event()
        self.cancelled: list[str] = []
        self.cancel_seen = asyncio.Event()
        self.refusal: Exception | None = None
        self.no_room: Exception | None = None
        self.room_checks = 0
        self.rows: dict[str, RequestRow] = {}
        self.orders: list[tuple[object, ...]] = []
        self.order_refusal: Exception | None = None
        self.broken: Exception | None = None
        self.figures: Mapping[str, Any] = {"pages_total": 64, "pages_free": 60}
        self._mailboxes: dict[str, Mailbox] = {}

    async def check_room(self) -> None:
        self.room_checks += 1
        if self.no_room is not None:
            raise self.no_room

    async def submit(self, submission: Submission) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.submissions.append(submission)
        mailbox = self._mailboxes[submission.request_id] = Mailbox(submission.n)
        for event in self.script(submission) if self.script else ():
            mailbox.put(event)
        self.submitted.set()

    async def events(self, request_id: str, idle_s: float | None) -> AsyncGenerator[Sequence[TokenEvent], None]:
        mailbox, silence = self._mailboxes[request_id], TokenEvent(request_id=request_id)
        is_over = False
        while not is_over:
            events = await mailbox.take()
            is_over = not mailbox.open_choices
            if self.broken is not None:
                raise self.broken
            yield [event for event in events if event != silence]

    async def cancel(self, request_id: str) -> None:
        self.cancelled.append(request_id)
        self.cancel_seen.set()

    async def status(self) -> Mapping[str, Any]:
        if self.broken is not None:
            raise self.broken
        return self.figures

    async def requests(self, owner: str | None) -> list[RequestRow]:
        return [row for row in self.rows.values() if owner in (None, row.owner)]

    async def request(self, request_id: str, owner: str | None) -> RequestRow:
        row = self.rows.get(request_id)
        if row is None or owner not in (None, row.owner):
            raise UnknownRequest(request_id)
        return row

    async def end(self, request_id: str, owner: str | None) -> RequestRow:
        return await self._order("end", request_id, owner)

    async def park(self, request_id: str, owner: str | None, terms: HoldTerms, wait_s: float = 5.0) -> RequestRow:
        return await self._order("park", request_id, owner, terms, wait_s)

    async def unpark(self, request_id: str, owner: str | None, wait_s: float = 0.0) -> RequestRow:
        return await self._order("unpark", request_id, owner)

    async def set_priority(self, request_id: str, owner: str | None, priority: int) -> RequestRow:
        return await self._order("priority", request_id, owner, priority)

    async def _order(self, kind: str, request_id: str, owner: str | None, *more: object) -> RequestRow:
        row = await self.request(request_id, owner)
        if self.order_refusal is not None:
            raise self.order_refusal
        self.orders.append((kind, request_id, *more))
        return row

    def fall_silent(self) -> None:
        """As long as a stream's keep-alive takes."""
        self.send()

    def send(self, *, text: str | bytes = "", finish: FinishReason | None = None, **more: Any) -> None:
        """To the newest submission."""
        request_id = self.submissions[-1].request_id
        tokens = tuple(text.encode() if isinstance(text, str) else text)
        self._mailboxes[request_id].put(TokenEvent(request_id=request_id, tokens=tokens, finish=finish, **more))


def says(*pieces: str | bytes | list[int], finish: FinishReason = FinishReason.STOP, **more: Any) -> Any:
    """A script: one event a piece and choice, then the ends."""

    def play(submission: Submission) -> list[TokenEvent]:
        name, choices = submission.request_id, range(submission.n)
        steps = [tuple(piece.encode() if isinstance(piece, str) else piece) for piece in pieces]
        events = [TokenEvent(request_id=name, choice=choice, tokens=step) for step in steps for choice in choices]
        return [*events, *(TokenEvent(request_id=name, choice=choice, finish=finish, **more) for choice in choices)]

    return play


def request_row(request_id: str, **more: Any) -> RequestRow:
    """A resident request of 5 prompt tokens that has said 7."""
    plain = RequestRow(
        request_id=request_id,
        slot=0,
        owner="",
        state="resident",
        held=False,
        hold_left_s=None,
        then=None,
        cancelling=False,
        priority=0,
        effective_priority=0,
        prompt_tokens=5,
        tokens=12,
        n=1,
        seats=1,
        pages=1,
        arena_pages=0,
        parks=0,
        recomputes=0,
        passes=0,
        waited_s=0.25,
        parked_s=0.0,
        age_s=1.5,
        group_id="group-0",
    )
    return dataclasses.replace(plain, **more)


class OpenCall:
    """A POST in progress: `next_piece` waits for the next message of the response, `hang_up` closes the connection."""

    def __init__(
        self, app: FastAPI, path: str, body: Mapping[str, Any], headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        self._inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._outbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._inbox.put_nowait({"type": "http.request", "body": json.dumps(body).encode(), "more_body": False})
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(b"content-type", b"application/json"), *headers],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
        }
        self.send_error: Exception | None = None
        self.task = asyncio.ensure_future(app(scope, self._inbox.get, self._send))

    async def _send(self, message: Any) -> None:
        if self.send_error is not None:
            raise self.send_error
        await self._outbox.put(message)

    async def next_message(self) -> dict[str, Any]:
        return await asyncio.wait_for(self._outbox.get(), 5)

    async def next_piece(self) -> bytes:
        return bytes((await self.next_message())["body"])

    def hang_up(self) -> None:
        self._inbox.put_nowait({"type": "http.disconnect"})
