"""Rates out of recorded streams."""

import pytest

from bench.streams import StreamError, StreamRecord, decode_rate, longest_gap, prefill_rate, total_rate


def record(*times: float, started: float = 0.0, prompt_tokens: int = 64, tokens: int | None = None) -> StreamRecord:
    """One event at each time; as many tokens as events unless said otherwise."""
    return StreamRecord(
        started=started,
        arrivals=tuple((time, 1) for time in times),
        prompt_tokens=prompt_tokens,
        completion_tokens=len(times) if tokens is None else tokens,
    )


def test_decode_counts_from_when_the_slowest_stream_has_its_first_token() -> None:
    early = record(1.0, 2.0, 3.0, 4.0)
    late = record(2.0, 3.0, 4.0, 5.0)
    # After t=2: early has 2 left, late has 3 left; the last ends at 5.
    assert decode_rate([early, late]) == pytest.approx(5 / 3)


def test_an_event_that_holds_two_tokens_counts_twice() -> None:
    assert decode_rate([record(1.0, 2.0, 3.0, tokens=6)]) == pytest.approx(4 / 2)


def test_total_counts_from_the_earliest_start() -> None:
    assert total_rate([record(2.0, 4.0, started=0.0), record(3.0, 5.0, started=1.0)]) == pytest.approx(4 / 5)


def test_prefill_is_prompt_tokens_until_the_first_token() -> None:
    assert prefill_rate(record(1.5, started=0.5, prompt_tokens=512)) == pytest.approx(512.0)


def test_a_stream_that_came_in_one_read_has_no_decode_rate() -> None:
    with pytest.raises(StreamError, match="more tokens"):
        decode_rate([record(1.0)])


def test_the_longest_gap_is_between_two_reads() -> None:
    assert longest_gap(record(1.0, 1.5, 4.0, 4.1)) == pytest.approx(2.5)
    assert longest_gap(record(1.0)) == 0.0
