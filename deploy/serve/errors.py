"""Why a server does not start or did not live.

ServeError
├── CannotServe      refused before anything was started: port, model, memory, ranks
└── ServerFailed     something that was started did not come up, or died
"""


class ServeError(RuntimeError):
    """One line that names the value, the bound and the way out."""


class CannotServe(ServeError):
    pass


class ServerFailed(ServeError):
    pass
