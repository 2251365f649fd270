"""What can go wrong on either side of the admin interface, each in one line for people. No gRPC in here.

AdminError(RuntimeError)
├── BadToken        the token file cannot be used
├── CannotListen    the admin port cannot be had
├── NoServer        no running server was found, or several were
├── NotReached      a server was named, and does not answer, or not to this token
└── OrderFailed     it answered that this cannot be done
"""


class AdminError(RuntimeError):
    """One line that names the value, the bound and the way out."""


class BadToken(AdminError):
    pass


class CannotListen(AdminError):
    pass


class NoServer(AdminError):
    pass


class NotReached(AdminError):
    pass


class OrderFailed(AdminError):
    pass
