"""Frames survive any cutting of the stream; endpoints say what is wrong with them."""

import pytest

from workers.link import BadEndpoint, BadFrame, LinkClosed
from workers.link.endpoint import Endpoint, connect, parse_endpoint
from workers.link.frames import FrameSplitter, frame


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 8, 1000])
def test_payloads_come_out_whole_however_the_stream_is_cut(piece: int) -> None:
    payloads = [b"", b"a", b"b" * 300, b"", b"c" * 7]
    stream = b"".join(frame(payload) for payload in payloads)
    splitter, got = FrameSplitter(), []
    for start in range(0, len(stream), piece):
        splitter.feed(stream[start : start + piece])
        while (payload := splitter.next_payload()) is not None:
            got.append(payload)
    assert got == payloads


def test_a_length_above_the_bound_is_refused_before_its_bytes_come() -> None:
    splitter = FrameSplitter(limit_bytes=10)
    splitter.feed((11).to_bytes(4, "little"))
    with pytest.raises(BadFrame, match="11 bytes is above the bound of 10"):
        splitter.next_payload()


@pytest.mark.parametrize("text", ["unix:/run/x.sock", "tcp:127.0.0.1:80", "tcp:::1:8080"])
def test_endpoints_read_as_they_are_written(text: str) -> None:
    assert str(parse_endpoint(text)) == text


@pytest.mark.parametrize("text", ["", "unix:relative", "tcp:host", "tcp::80", "tcp:host:65536", "tcp:h:x", "http://a"])
def test_other_endpoints_are_refused(text: str) -> None:
    with pytest.raises(BadEndpoint, match="neither unix:/absolute/path nor tcp:host:port"):
        parse_endpoint(text)


def test_a_socket_path_longer_than_the_system_allows_is_refused_with_both_numbers() -> None:
    with pytest.raises(BadEndpoint, match="has 108 bytes, the system allows 107"):
        parse_endpoint("unix:/" + "x" * 107)


def test_nobody_at_an_endpoint_is_a_clear_error() -> None:
    with pytest.raises(LinkClosed, match=r"nobody answers at unix:/nonexistent/link\.sock"):
        connect(Endpoint(path="/nonexistent/link.sock"), 1.0)
