"""Why admission refuses a submission or an order. Every error keeps its numbers as fields and survives pickling.

AdmissionError
├── AdmissionRefused       the request did not get in; nothing of it is kept
│   ├── NeverFits          no group can ever hold it: the client must send less
│   ├── TooManyChoices     no group has a seat for each of its choices
│   ├── QueueFull          too much is waiting: the client may come back after `retry_after_s`
│   ├── CapacityExhausted  pools and host RAM are full, and nobody can be parked: come back after `retry_after_s`
│   ├── Draining           nothing new is taken: come back after `retry_after_s`
│   ├── DuplicateRequest   a live request already has this id
│   └── NoGroup            no engine has registered, or every one is lost
├── OrderRefused           a park, an unpark or a new priority that cannot be; nothing has changed
│   ├── UnknownRequest     no live request has this id
│   └── WrongState         it lives, but not in a state that allows this
└── AdmissionCorrupt       an integrity check failed: a fault of ours, never of a client
"""


class AdmissionError(Exception):
    """Root of this package's errors."""


class AdmissionRefused(AdmissionError):
    """A submission was turned away before anything was done for it."""


class NeverFits(AdmissionRefused):
    """`needed_tokens` exceed `limit_tokens`, the most any group can hold.

    Needed are the prompt and one token to generate; of several choices that many each, the shared prompt once, in
    whole pages.
    """

    def __init__(self, needed_tokens: int, limit_tokens: int, bound: str, choices: int = 1) -> None:
        super().__init__(needed_tokens, limit_tokens, bound, choices)
        self.needed_tokens = needed_tokens
        self.limit_tokens = limit_tokens
        self.bound = bound
        self.choices = choices

    def __str__(self) -> str:
        if self.choices > 1:
            return (
                f"{self.choices} choices need {self.needed_tokens} tokens of KV to generate one each (the shared "
                f"prompt counted once, in whole pages), but {self.bound} is {self.limit_tokens} tokens: "
                "ask for fewer choices or send a shorter prompt"
            )
        return (
            f"the prompt has {self.needed_tokens - 1} tokens and needs {self.needed_tokens} to generate one, "
            f"but {self.bound} is {self.limit_tokens} tokens: send at most {self.limit_tokens - 1}"
        )


class TooManyChoices(AdmissionRefused):
    """`n` choices run side by side and need a seat each; no group has more than `seats`."""

    def __init__(self, n: int, seats: int) -> None:
        super().__init__(n, seats)
        self.n = n
        self.seats = seats

    def __str__(self) -> str:
        return f"n is {self.n}, but at most {self.seats} choices can run side by side: ask for at most {self.seats}"


class QueueFull(AdmissionRefused):
    """`waiting` of at most `limit` (`unit` says of what) already wait. `retry_after_s` is a whole number of seconds."""

    def __init__(self, waiting: int, limit: int, unit: str, retry_after_s: int) -> None:
        super().__init__(waiting, limit, unit, retry_after_s)
        self.waiting = waiting
        self.limit = limit
        self.unit = unit
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return (
            f"the queue is full: {self.waiting} of at most {self.limit} {self.unit} wait; "
            f"retry in {self.retry_after_s} s"
        )


class CapacityExhausted(AdmissionRefused):
    """KV pools and host RAM are full and recomputing is off. `retry_after_s` is a whole number of seconds."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(retry_after_s)
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return f"the KV pool and the host RAM budget are full; retry in {self.retry_after_s} s"


class Draining(AdmissionRefused):
    """What lives goes on to its end, nothing new is taken. `retry_after_s` is a whole number of seconds."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(retry_after_s)
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return f"the server is draining and takes no new requests; retry in {self.retry_after_s} s"


class DuplicateRequest(AdmissionRefused):
    """`request_id` names a request that is still alive."""

    def __init__(self, request_id: str) -> None:
        super().__init__(request_id)
        self.request_id = request_id

    def __str__(self) -> str:
        return f"request {self.request_id} is alive already: use a fresh id, or wait for its end"


class NoGroup(AdmissionRefused):
    """There is no engine to run anything on; `retry_after_s` is a whole number of seconds."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(retry_after_s)
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return f"no engine is ready; retry in {self.retry_after_s} s"


class OrderRefused(AdmissionError):
    """An order for a live request was turned away, and nothing has changed."""


class UnknownRequest(OrderRefused):
    """No live request has `request_id`, as far as who asks may know."""

    def __init__(self, request_id: str) -> None:
        super().__init__(request_id)
        self.request_id = request_id

    def __str__(self) -> str:
        return f"no live request has the id {self.request_id}: it has ended, or never was"


class WrongState(OrderRefused):
    """`request_id` is in `state` (a `RequestState`, or "ending"), which does not allow it; `why` says why not."""

    def __init__(self, request_id: str, state: str, why: str) -> None:
        super().__init__(request_id, state, why)
        self.request_id = request_id
        self.state = state
        self.why = why

    def __str__(self) -> str:
        return f"request {self.request_id} is {self.state}: {self.why}"


class AdmissionCorrupt(AdmissionError):
    """The books do not add up; the message names what was found."""
