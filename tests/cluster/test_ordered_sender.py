"""Order is kept over a transport that keeps none, because one batch at a time is on its way."""

import asyncio
from collections.abc import Sequence

from cluster.ordered_sender import OrderedSender


class Peer:
    """Takes a batch when the test lets it."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.turn = asyncio.Event()
        self.error: Exception | None = None
        self.losses: list[str] = []

    async def take(self, batch: Sequence[int]) -> None:
        await self.turn.wait()
        if self.error is not None:
            raise self.error
        self.batches.append(list(batch))

    def sender(self, max_waiting: int = 100) -> OrderedSender[int]:
        return OrderedSender(self.take, lambda error: self.losses.append(str(error)), max_waiting)


async def test_what_comes_up_while_a_batch_is_on_its_way_goes_with_the_next_one() -> None:
    peer = Peer()
    sender = peer.sender()
    sender.put(1)
    await asyncio.sleep(0)  # the first batch leaves
    for number in (2, 3, 4):
        sender.put(number)
    peer.turn.set()
    await sender.flush()
    assert peer.batches == [[1], [2, 3, 4]]
    sender.put(5)
    await sender.flush()
    assert peer.batches[-1] == [5]


async def test_a_peer_that_fails_is_lost_once_and_gets_nothing_more() -> None:
    peer = Peer()
    peer.error = ConnectionError("gone")
    peer.turn.set()
    sender = peer.sender()
    sender.put(1)
    sender.put(2)
    await sender.flush()
    sender.put(3)
    await sender.flush()
    assert peer.losses == ["gone"]
    assert peer.batches == []


async def test_a_peer_that_takes_nothing_is_lost_at_the_bound() -> None:
    peer = Peer()
    sender = peer.sender(max_waiting=2)
    sender.put(0)
    await asyncio.sleep(0)
    for number in (1, 2, 3, 4):
        sender.put(number)
    assert peer.losses == ["3 messages wait for a peer that does not take them"]
    sender.close()


async def test_a_closed_sender_drops_what_waits() -> None:
    peer = Peer()
    sender = peer.sender()
    sender.put(1)
    await asyncio.sleep(0)
    sender.put(2)
    sender.close()
    sender.put(3)
    peer.turn.set()
    await sender.flush()
    assert (peer.batches, peer.losses) == ([], [])
