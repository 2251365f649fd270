"""What the HTTP face needs from the machine behind it, and nothing more. Tests give it a backend of their own."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Protocol

from scheduler.admission import HoldTerms, RequestRow
from scheduler.messages import Submission, TokenEvent


class Orders(Protocol):
    """What may be asked and ordered of living requests. `owner` is who asks; another owner's request is unknown.

    Raises `OrderRefused`: `UnknownRequest`, or `WrongState` when the order cannot be carried out.
    """

    async def requests(self, owner: str | None) -> list[RequestRow]: ...

    async def request(self, request_id: str, owner: str | None) -> RequestRow: ...

    async def end(self, request_id: str, owner: str | None) -> RequestRow:
        """Cancel it; its stream ends as cancelled."""
        ...

    async def park(self, request_id: str, owner: str | None, terms: HoldTerms, wait_s: float = 5.0) -> RequestRow:
        """Hold it until `unpark`; return when its pages are free, or with the state "parking" after `wait_s`."""
        ...

    async def unpark(self, request_id: str, owner: str | None, wait_s: float = 0.0) -> RequestRow: ...

    async def set_priority(self, request_id: str, owner: str | None, priority: int) -> RequestRow: ...


class Backend(Orders, Protocol):
    """Requests in, token events out. Every method may raise `deploy.errors.BackendLost`."""

    @property
    def gateway_id(self) -> str:
        """Names the outbox that an engine sends this gateway's tokens to."""
        ...

    async def check_room(self) -> None:
        """Raises `AdmissionRefused` if a request would be refused now, whatever it holds. `submit` decides."""
        ...

    async def submit(self, submission: Submission) -> None:
        """Return once admission has accepted it. Raises `AdmissionRefused`: then nothing of it is kept."""
        ...

    def events(self, request_id: str, idle_s: float | None) -> AsyncGenerator[Sequence[TokenEvent], None]:
        """All events there are, in order, each time there are some, and an empty sequence each time none has come for
        `idle_s`; ends after the one with which every choice has its `finish`."""
        ...

    async def cancel(self, request_id: str) -> None:
        """Stop a request of this gateway and forget it; no more events come. An unknown or finished id is no error."""
        ...

    async def status(self) -> Mapping[str, Any]:
        """Figures of pool and queue; the answer has been through the engine's step loop."""
        ...
