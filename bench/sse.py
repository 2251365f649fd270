"""Server-sent events out of a byte stream cut anywhere: comments, data, and the end marker `[DONE]`."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Comment:
    """A line that starts with a colon: what a server says beside the data."""

    text: str


@dataclass(frozen=True, slots=True)
class Data:
    text: str

    @property
    def is_done(self) -> bool:
        return self.text == "[DONE]"


@dataclass(slots=True)
class SseParser:
    """Feed it bytes, get whole events. One `data:` line is one event, as OpenAI-compatible servers send it."""

    _rest: bytes = field(default=b"")

    def feed(self, block: bytes) -> list[Comment | Data]:
        lines = (self._rest + block).split(b"\n")
        self._rest = lines.pop()
        events: list[Comment | Data] = []
        for line in lines:
            text = line.rstrip(b"\r").decode()
            if text.startswith(":"):
                events.append(Comment(text[1:].strip()))
            elif text.startswith("data:"):
                events.append(Data(text[5:].strip()))
        return events
