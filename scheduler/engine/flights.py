"""Plans that were sent and not answered, and what their answers and the ends of copies bring.

Answers come in the order of the plans. The end of a copy comes after the answers of all plans before its own; one that
overtook such an answer on its way here waits for it, so that a token owed is applied before its sequence is out.
"""

from collections import deque

from scheduler.engine.copies import Copies
from scheduler.engine.counters import EngineCounters
from scheduler.engine.draft import Draft
from scheduler.engine.errors import PlanMismatch
from scheduler.engine.exits import Exits
from scheduler.engine.outbox import Outbox
from scheduler.engine.parking import Parking
from scheduler.engine.sequence import State
from scheduler.messages import FinishReason
from scheduler.plan import CopyResult, StepPlan, StepResult


class Flights:
    """Applies answers to the sequences that their plans named."""

    def __init__(
        self, copies: Copies, parking: Parking, exits: Exits, outbox: Outbox, counters: EngineCounters
    ) -> None:
        self._copies = copies
        self._parking = parking
        self._exits = exits
        self._outbox = outbox
        self._counters = counters
        self._flights: deque[Draft] = deque()
        self._early_copies: list[CopyResult] = []
        self.next_step = 0

    def __len__(self) -> int:
        return len(self._flights)

    def send(self, draft: Draft) -> StepPlan:
        """The plan of a draft, which is in flight from now on."""
        assert draft.step == self.next_step
        self.next_step += 1
        self._flights.append(draft)
        return draft.seal()

    def land(self, result: StepResult, now: float) -> None:
        """The answer to the oldest plan. Raises `PlanMismatch`."""
        if not self._flights or self._flights[0].step != result.step:
            oldest = self._flights[0].step if self._flights else None
            raise PlanMismatch(f"the ranks answered step {result.step}; the oldest plan in flight is {oldest}")
        flight = self._flights.popleft()
        for seq in flight.computing:
            seq.num_flights -= 1
            if seq.finish is not None:
                self._exits.settle(seq.family)
        self._hand_out(flight, result)
        self._counters.note_step(result.step_s)
        self._parking.drop_ready(now)
        if self._early_copies:
            early, self._early_copies = self._early_copies, []
            for copied in early:
                self.land_copy(copied, now)

    def land_copy(self, result: CopyResult, now: float) -> None:
        """The end of a copy. Raises `PlanMismatch` for one that is not under way."""
        copy = self._copies.under_way.get(result.copy_id)
        if copy is None:
            under_way = sorted(self._copies.under_way)
            raise PlanMismatch(f"the ranks ended copy {result.copy_id}; under way are {under_way}")
        if self._flights and self._flights[0].step < copy.step:
            self._early_copies.append(result)
            return
        self._copies.land(result.copy_id)
        self._counters.note_copy(result.outcome)
        family = copy.family
        self._exits.settle(family)
        if family.state is State.ENDED:
            return
        error = self._parking.land(copy, result, now)
        if error is not None:
            self._exits.end(family, FinishReason.ERROR, now, error=error)

    def abandon(self) -> None:
        """The ranks are lost: nothing will be answered."""
        while self._flights:
            for seq in self._flights.popleft().computing:
                seq.num_flights -= 1
        self._early_copies.clear()
        self._copies.abandon()

    def count(self) -> dict[int, int]:
        """How many flights name each sequence, by seq_id."""
        counted: dict[int, int] = {}
        for flight in self._flights:
            for seq in flight.computing:
                counted[seq.seq_id] = counted.get(seq.seq_id, 0) + 1
        return counted

    def _hand_out(self, flight: Draft, result: StepResult) -> None:
        if len(result.tokens) != len(flight.sampling):
            raise PlanMismatch(f"step {result.step}: {len(result.tokens)} tokens for {len(flight.sampling)} samples")
        counters, say = self._counters, self._outbox.say
        for seq, (seq_id, token) in zip(flight.sampling, result.tokens, strict=True):
            if seq.seq_id != seq_id:
                raise PlanMismatch(f"step {result.step}: a token for sequence {seq_id}, due was {seq.seq_id}")
            if seq.finish is not None:
                continue  # it ended one step before this was known to be too much
            seq.num_pending -= 1
            if token in seq.stop_ids:
                self._exits.end_choice(seq, FinishReason.STOP)
                continue
            seq.num_tokens += 1
            counters.generated_tokens += 1
            if seq.num_tokens >= seq.limit:
                self._exits.end_choice(seq, FinishReason.LENGTH, (token,))
            else:
                say(seq, (token,))
