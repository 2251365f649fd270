"""What the HTTP face needs from the machine behind it, and nothing more. Tests give it a backend of their own."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Protocol

from scheduler.messages import Submission, TokenEvent


class Backend(Protocol):
    """Requests in, token events out. Every method may raise `deploy.errors.BackendLost`."""

    @property
    def gateway_id(self) -> str:
        """Names the outbox that an engine sends this gateway's tokens to."""
        ...

    async def submit(self, submission: Submission) -> None:
        """Return once admission has accepted it. Raises `AdmissionRefused`: then nothing of it is kept."""
        ...

    def events(self, request_id: str) -> AsyncGenerator[Sequence[TokenEvent], None]:
        """All events there are, in order, each time there are some; ends after the one that sets `finish`."""
        ...

    async def cancel(self, request_id: str) -> None:
        """Stop a request and forget it; no more events come. An unknown or finished id is nothing to complain about."""
        ...

    async def status(self) -> Mapping[str, Any]:
        """Figures of pool and queue; the answer has been through the engine's step loop."""
        ...
