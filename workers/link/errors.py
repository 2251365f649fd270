"""What can go wrong on a socket between an engine and the others.

LinkError(RuntimeError)
├── BadEndpoint     an endpoint string that names no socket
├── BadFrame        a peer sent what is no frame of ours, or one above the bound
├── LinkRefused     the other side does not take us: wrong token, version, rank
└── LinkClosed      the other side is gone
"""


class LinkError(RuntimeError):
    """A link between an engine and a rank or gateway cannot go on."""


class BadEndpoint(LinkError):  # one Error, the root
    """Neither "unix:/absolute/path" nor "tcp:host:port"."""


class BadFrame(LinkError):
    """Bytes that are no frame, or a frame above the bound."""


class LinkRefused(LinkError):
    """The hello was not accepted."""


class LinkClosed(LinkError):
    """The peer closed the connection."""
