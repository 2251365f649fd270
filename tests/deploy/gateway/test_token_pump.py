"""What the pump and its mailboxes do with time, and with events nobody expects."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from deploy.gateway.mailbox import Mailbox
from deploy.gateway.token_pump import LATE_S, TokenPump
from scheduler.admission import DuplicateRequest
from scheduler.messages import FinishReason, Notice, TokenEvent


def event(choice: int = 0, *, finish: FinishReason | None = None, notice: Notice | None = None) -> TokenEvent:
    return TokenEvent(request_id="a", choice=choice, finish=finish, notice=notice)


async def test_a_mailbox_in_which_nothing_comes_is_taken_empty() -> None:
    mailbox = Mailbox(1)
    assert await mailbox.take(idle_s=0.001) == []
    mailbox.put(event())
    assert await mailbox.take(idle_s=0.001) == [event()]


async def test_a_mailbox_without_a_time_waits_for_its_event() -> None:
    mailbox = Mailbox(1)
    taking = asyncio.ensure_future(mailbox.take())
    await asyncio.sleep(0)
    assert not taking.done()
    mailbox.put(event(finish=FinishReason.STOP))
    assert await taking == [event(finish=FinishReason.STOP)]
    assert mailbox.open_choices == set()


async def test_a_mailbox_drops_what_comes_of_a_choice_after_its_end_and_keeps_notices() -> None:
    mailbox = Mailbox(2)
    end = event(finish=FinishReason.STOP)
    for each in (end, event(), event(5), event(notice=Notice.PARKED)):
        mailbox.put(each)
    assert await mailbox.take() == [end, event(notice=Notice.PARKED)]
    assert mailbox.open_choices == {1}


async def test_an_id_closed_before_its_end_is_free_again_after_a_while() -> None:
    time = 0.0
    pump = TokenPump(now=lambda: time)
    pump.open("a", 1)
    pump.close("a")
    time = LATE_S - 0.001
    with pytest.raises(DuplicateRequest):
        pump.open("a", 1)
    time = LATE_S
    pump.open("a", 1)
    assert pump.num_open == 1


async def test_an_id_of_a_family_closed_before_its_end_is_free_when_every_choice_has_ended() -> None:
    pump = TokenPump()
    pump.open("a", 2)
    pump.close("a")

    async def batches(*choices: int) -> AsyncIterator[list[TokenEvent]]:
        yield [event(choice, finish=FinishReason.CANCELLED) for choice in choices]

    await pump.run("group-0", batches(0))
    assert pump.knows("a")
    await pump.run("group-0", batches(1))
    assert not pump.knows("a")
