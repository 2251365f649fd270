"""What a driver tells its supervisor, one JSON object a line on a pipe."""

import msgspec


class Progress(msgspec.Struct, frozen=True, tag=True):
    """One thing is done, or begun, while loading."""

    text: str


class Ready(msgspec.Struct, frozen=True, tag=True):
    """`/health` has answered, `seconds` after the driver began.

    `admin` is HOST:PORT of the admin interface, `metrics_url` that of Ray's Prometheus page, "" if it has none.
    """

    seconds: float
    admin: str
    metrics_url: str


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The server did not come up, or was lost. `text` is one line for people, `trace` is for --debug."""

    text: str
    trace: str = ""


Report = Progress | Ready | Failed


def encode_report(report: Report) -> bytes:
    """One line, closed."""
    return msgspec.json.encode(report) + b"\n"


def decode_report(line: bytes) -> Report:
    return msgspec.json.decode(line, type=Report)
