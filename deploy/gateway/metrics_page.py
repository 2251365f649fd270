"""Which lines of a node's metrics page are ours. The page is Prometheus' text format."""

from typing import Protocol

PREFIX = "ray_parkade_"
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsUnavailable(RuntimeError):
    """The node's page cannot be read now. The message may be shown to a client."""


class MetricsPage(Protocol):
    """Where the page comes from."""

    async def read(self) -> str:
        """The whole page. Raises `MetricsUnavailable`."""
        ...


def only_ours(page: str) -> str:
    """Samples whose name begins with `PREFIX`, with their HELP and TYPE lines, in order."""
    return "".join(f"{line}\n" for line in page.split("\n") if _is_ours(line))


def _is_ours(line: str) -> bool:
    if not line.startswith("#"):
        return line.startswith(PREFIX)
    words = line.split(maxsplit=3)
    return len(words) > 2 and words[2].startswith(PREFIX)


class NoMetrics:
    """Where there is no page."""

    async def read(self) -> str:
        """Raises `MetricsUnavailable`."""
        raise MetricsUnavailable("this server exports no metrics")
