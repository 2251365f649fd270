"""Carries a schedule out on ranks and compares every stream with its solo run."""

import contextlib
from dataclasses import replace

from bench.exactness.bank import BankEntry, SoloBook, submission_of
from bench.exactness.faults import Faults
from bench.exactness.outcome import Outcome
from bench.exactness.ranks import RUN_TIMEOUT_S, ExactRanks
from bench.exactness.schedule import Act, Asked, Deed, Schedule
from bench.local_group import LocalGroup, Stream
from scheduler.admission import OrderRefused

QUIET_S = 0.02


class ScheduleRun:
    """One schedule on one engine. `streams[i]` is `schedule.asked[i]` once it has come."""

    def __init__(self, schedule: Schedule, bank: tuple[BankEntry, ...], group: LocalGroup, faults: Faults) -> None:
        self._schedule, self._bank, self._group, self._faults = schedule, bank, group, faults
        self.streams: dict[int, Stream] = {}

    async def run(self) -> None:
        """Until every request has ended. Raises `StreamError` when one does not."""
        schedule = self._schedule
        to_come: list[tuple[int, int | Act]] = [(each.after_tokens, at) for at, each in enumerate(schedule.asked)]
        to_come += [(act.after_tokens, act) for act in schedule.acts]
        for after_tokens, event in sorted(to_come, key=lambda pair: pair[0]):
            while self._num_tokens() < after_tokens and self._can_move():
                await self._group.news(QUIET_S)
            if isinstance(event, Act):
                with contextlib.suppress(OrderRefused):  # it is ending, or cannot be parked now
                    self._act(event)
            else:
                self._ask(event, schedule.asked[event])
        # Nobody is parked by order any more, and no fault waits for a copy that never comes.
        self._faults.fail = self._faults.spoil = 0
        for stream in self.streams.values():
            with contextlib.suppress(OrderRefused):
                self._group.unpark(stream.request_id)
        await self._group.ended(list(self.streams.values()), RUN_TIMEOUT_S)

    def _num_tokens(self) -> int:
        return sum(stream.num_tokens for stream in self.streams.values())

    def _can_move(self) -> bool:
        """Somebody lives who is not held."""
        rows = self._group.admission.status(self._group.now()).requests
        return any(not row.held for row in rows)

    def _ask(self, at: int, asked: Asked) -> None:
        entry = self._bank[asked.bank]
        submission = submission_of(entry, f"r{at}", asked.max_tokens, priority=asked.priority, n=asked.n)
        self.streams[at] = self._group.submit(submission)

    def _act(self, act: Act) -> None:
        group, faults = self._group, self._faults
        if act.deed is Deed.FAIL:
            faults.fail += 1
        elif act.deed is Deed.SPOIL:
            faults.spoil += 1
        elif (stream := self.streams.get(act.target)) is None or stream.ended.is_set():
            return
        elif act.deed is Deed.PARK:
            group.park(stream.request_id)
        elif act.deed is Deed.UNPARK:
            group.unpark(stream.request_id)
        elif act.deed is Deed.PRIORITY:
            group.set_priority(stream.request_id, act.value)
        else:
            group.cancel(stream.request_id)


async def run_schedule(ranks: ExactRanks, schedule: Schedule, bank: tuple[BankEntry, ...], book: SoloBook) -> Outcome:
    config = replace(
        ranks.limits,
        num_pages=schedule.num_pages,
        arena_pages=schedule.arena_pages,
        max_step_tokens=schedule.max_step_tokens,
        max_running=schedule.max_running,
        max_inflight=schedule.max_inflight,
        recompute=schedule.recompute,
    )
    outcome, faults = Outcome(), Faults(ranks.spoil_slot)
    async with ranks.engine(config, faults.verdict, outcome.hear) as group:
        run = ScheduleRun(schedule, bank, group, faults)
        await run.run()
        outcome.deeds["wrong checksums found"] = group.core.counters.corrupt_copies
    outcome.deeds["copies failed"] = faults.num_failed
    outcome.deeds["copies spoilt"] = faults.num_spoilt
    for at, stream in run.streams.items():
        asked = schedule.asked[at]
        outcome.deeds["requests"] += 1
        outcome.deeds["families"] += asked.n > 1
        outcome.deeds["cancelled"] += any(choice.finish == "cancelled" for choice in stream.choices)
        for choice in range(asked.n):
            alone = await book.tokens(asked.bank, choice, asked.max_tokens)
            outcome.compare(f"schedule {schedule.seed}, request {at}, choice {choice}", stream, choice, alone)
    return outcome
