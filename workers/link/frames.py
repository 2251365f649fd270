"""Frames on a byte stream: a little-endian uint32 length, then that many bytes. Knows nothing of what they mean."""

import struct

from workers.link.errors import BadFrame

MAX_FRAME_BYTES = 64 * 1024 * 1024
MAX_HELLO_BYTES = 4 * 1024  # what a peer may send before it has shown the token

_LENGTH = struct.Struct("<I")


def frame(payload: bytes) -> bytes:
    """`payload` with its length before it. Raises BadFrame above 64 MiB."""
    if len(payload) > MAX_FRAME_BYTES:
        raise BadFrame(f"a frame of {len(payload)} bytes is above the bound of {MAX_FRAME_BYTES}")
    return _LENGTH.pack(len(payload)) + payload


class FrameSplitter:
    """Cuts a stream into payloads, whatever the pieces it comes in. `limit_bytes` may be changed between frames."""

    def __init__(self, limit_bytes: int = MAX_FRAME_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next_payload(self) -> bytes | None:
        """The next whole payload; None when more bytes are needed. Raises BadFrame as soon as a length is too large."""
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > self.limit_bytes:
            raise BadFrame(f"a frame of {length} bytes is above the bound of {self.limit_bytes}")
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        payload = bytes(memoryview(self._buffer)[_LENGTH.size : end])
        del self._buffer[:end]
        return payload
