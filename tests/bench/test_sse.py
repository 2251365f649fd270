"""Server-sent events, cut at every place."""

import pytest

from bench.sse import Comment, Data, SseParser

STREAM = b': parked\n\ndata: {"a":"\xc3\xa9"}\n\n: resumed\r\n\r\ndata: [DONE]\n\n'
EVENTS = [Comment("parked"), Data('{"a":"\u00e9"}'), Comment("resumed"), Data("[DONE]")]


@pytest.mark.parametrize("cut", range(len(STREAM) + 1))
def test_events_are_the_same_wherever_the_bytes_are_cut(cut: int) -> None:
    parser = SseParser()
    assert parser.feed(STREAM[:cut]) + parser.feed(STREAM[cut:]) == EVENTS


def test_a_line_is_held_back_until_it_is_whole() -> None:
    parser = SseParser()
    assert parser.feed(b"data: [DO") == []
    (event,) = parser.feed(b"NE]\n")
    assert event == Data("[DONE]")
    assert isinstance(event, Data)
    assert event.is_done
