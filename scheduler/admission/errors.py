"""Why admission refuses a submission. Every error keeps its numbers as fields and survives pickling.

AdmissionError
├── AdmissionRefused      the request did not get in; nothing of it is kept
│   ├── NeverFits         no group can ever hold it: the client must send less
│   ├── QueueFull         too much is waiting: the client may come back after `retry_after_s`
│   ├── DuplicateRequest  a live request already has this id
│   └── NoGroup           no engine has registered, or every one is lost
└── AdmissionCorrupt      an integrity check failed: a fault of ours, never of a client
"""


class AdmissionError(Exception):
    """Root of this package's errors."""


class AdmissionRefused(AdmissionError):
    """A submission was turned away before anything was done for it."""


class NeverFits(AdmissionRefused):
    """`needed_tokens` (the prompt and one token to generate) exceed `limit_tokens`, the most any group can hold."""

    def __init__(self, needed_tokens: int, limit_tokens: int, bound: str) -> None:
        super().__init__(needed_tokens, limit_tokens, bound)
        self.needed_tokens = needed_tokens
        self.limit_tokens = limit_tokens
        self.bound = bound

    def __str__(self) -> str:
        return (
            f"the prompt has {self.needed_tokens - 1} tokens and needs {self.needed_tokens} to generate one, "
            f"but {self.bound} is {self.limit_tokens} tokens: send at most {self.limit_tokens - 1}"
        )


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


class AdmissionCorrupt(AdmissionError):
    """The books do not add up; the message names what was found."""
