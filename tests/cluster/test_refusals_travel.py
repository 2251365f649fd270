"""Refusals travel as values, so every one must come out of a pickle as it went in; and so must what is asked for."""

import asyncio
import pickle
from collections.abc import Iterator

import pytest

from cluster.admission_actor import _awaited, _value
from cluster.watch import WatchBatch, WatchEvent
from scheduler.admission import (
    AdmissionRefused,
    CapacityExhausted,
    Draining,
    DuplicateRequest,
    HoldEnd,
    HoldTerms,
    NeverFits,
    NoGroup,
    OrderRefused,
    QueueFull,
    TooManyChoices,
    UnknownRequest,
    WrongState,
)
from tests.cluster.desks import Scene

REFUSALS: list[AdmissionRefused | OrderRefused] = [
    NeverFits(100, 50, "the KV pool"),
    NeverFits(100, 50, "the KV pool", 3),
    TooManyChoices(9, 4),
    QueueFull(5, 4, "requests", 7),
    CapacityExhausted(3),
    Draining(4),
    DuplicateRequest("a"),
    NoGroup(60),
    UnknownRequest("a"),
    WrongState("a", "resident", "parking is off"),
]


def leaves(kind: type) -> Iterator[type]:
    for child in kind.__subclasses__():
        yield child
        yield from leaves(child)


def test_the_list_above_has_every_refusal_there_is() -> None:
    assert {type(refusal) for refusal in REFUSALS} == {*leaves(AdmissionRefused), *leaves(OrderRefused)}


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: type(refusal).__name__)
def test_a_refusal_survives_the_way_with_all_its_numbers(refusal: Exception) -> None:
    back = pickle.loads(pickle.dumps(refusal))
    assert type(back) is type(refusal)
    assert (str(back), vars(back), back.args) == (str(refusal), vars(refusal), refusal.args)


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: type(refusal).__name__)
def test_the_actor_answers_with_the_refusal_itself(refusal: Exception) -> None:
    def refuse() -> None:
        raise refusal

    async def refuse_later() -> None:
        raise refusal

    assert _value(refuse) is refusal
    assert asyncio.run(_awaited(refuse_later())) is refusal


def test_a_fault_is_no_refusal() -> None:
    with pytest.raises(ZeroDivisionError):
        _value(lambda: 1 / 0)


async def test_rows_terms_and_events_survive_the_way() -> None:
    scene = Scene()
    await scene.resident("a", owner="k1")
    terms = HoldTerms(deadline_s=5.0, then=HoldEnd.CANCEL)
    await scene.desk.orders.park("a", "k1", terms, 0.0)
    event = WatchEvent(number=3, unix_s=1.5, kind="parked", request_id="a", group_id="g", facts={"tier": 0})
    for value in (scene.desk.orders.request("a", None), terms, WatchBatch(next=4, lost=1, events=(event,))):
        assert pickle.loads(pickle.dumps(value)) == value
