"""Events are numbered without a gap, kept up to a bound, and waited for without polling."""

import asyncio

from cluster.watch import MAX_IN_BATCH, WatchBatch, WatchRing


def ring(max_kept: int = 4) -> WatchRing:
    return WatchRing(lambda: 7.0, max_kept)


def numbers(batch: WatchBatch) -> list[int]:
    return [event.number for event in batch.events]


def test_an_event_keeps_what_was_said_of_it() -> None:
    event = ring().add("parked", "a", "g", tier=3)
    assert (event.number, event.unix_s, event.kind, event.request_id, event.group_id) == (0, 7.0, "parked", "a", "g")
    assert event.facts == {"tier": 3}


def test_a_reader_gets_what_is_kept_from_its_number_on_and_is_told_what_it_lost() -> None:
    watch = ring(max_kept=4)
    for number in range(6):
        watch.add(f"kind-{number}")
    assert numbers(watch.read(4)) == [4, 5]
    batch = watch.read(0)
    assert (numbers(batch), batch.lost, batch.next) == ([2, 3, 4, 5], 2, 6)
    assert watch.read(6) == WatchBatch(next=6, lost=0, events=())


def test_a_reader_from_now_on_or_from_a_number_never_given_is_told_where_now_is() -> None:
    watch = ring()
    watch.add("old")
    assert watch.read(-1) == WatchBatch(next=1, lost=0, events=())
    assert watch.read(99) == WatchBatch(next=1, lost=0, events=())


def test_one_batch_is_bounded_and_says_where_to_go_on() -> None:
    watch = ring(max_kept=MAX_IN_BATCH + 10)
    for _ in range(MAX_IN_BATCH + 10):
        watch.add("kind")
    first = watch.read(0)
    assert (len(first.events), first.next) == (MAX_IN_BATCH, MAX_IN_BATCH)
    assert numbers(watch.read(first.next)) == list(range(MAX_IN_BATCH, MAX_IN_BATCH + 10))


async def test_a_wait_ends_with_the_next_event_for_everybody_who_waits() -> None:
    watch = ring()
    waits = [asyncio.create_task(watch.wait(0, 20.0)) for _ in range(2)]
    await asyncio.sleep(0)
    assert not any(wait.done() for wait in waits)
    watch.add("first")
    assert [numbers(batch) for batch in await asyncio.gather(*waits)] == [[0], [0]]
    later = asyncio.create_task(watch.wait(1, 20.0))
    await asyncio.sleep(0)
    watch.add("second")
    assert numbers(await later) == [1]


async def test_a_wait_for_what_is_there_or_for_now_does_not_wait() -> None:
    watch = ring()
    watch.add("first")
    async with asyncio.timeout(1):
        assert numbers(await watch.wait(0, 20.0)) == [0]
        assert (await watch.wait(-1, 20.0)).next == 1
        assert (await watch.wait(1, 0.0)).events == ()


async def test_a_wait_without_news_comes_back_empty_and_one_that_is_given_up_harms_nobody() -> None:
    watch = ring()
    assert await watch.wait(0, 0.01) == WatchBatch(next=0, lost=0, events=())
    given_up = asyncio.create_task(watch.wait(0, 20.0))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait([given_up])
    watch.add("first")
    assert numbers(watch.read(0)) == [0]
