"""Fakes that stand on the seams. `FakeRanks` mirrors every plan and refuses a wrong one; its KV is real enough to
spoil.

The fake's pool holds token ids in page slots. A sequence's next token is drawn from what its page table leads to, so a
page that was given away too early, or a copy that went astray, shows as a wrong token, as it would on real ranks.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from zlib import crc32

from scheduler.executor import ExecutorFailed
from scheduler.plan import Chunk, NewSequence, PageGrant, ParkOrder, RestoreOrder, StepPlan, StepResult

POISON = -1


def next_token(tokens: Sequence[int], seed: int, vocab: int) -> int:
    """The token after `tokens`: a function of the tokens, the seed and the position alone."""
    text = ",".join(map(str, tokens))
    return crc32(f"{seed}:{len(tokens)}:{text}".encode()) % vocab


def solo_run(prompt: Sequence[int], seed: int, vocab: int, num_tokens: int, stop_ids: Sequence[int] = ()) -> list[int]:
    """What a sequence alone generates, up to `num_tokens` and without a stop token."""
    tokens = list(prompt)
    while len(tokens) - len(prompt) < num_tokens:
        token = next_token(tokens, seed, vocab)
        if token in stop_ids:
            break
        tokens.append(token)
    return tokens[len(prompt) :]


@dataclass
class Mirror:
    """What a rank knows of one sequence. `arena_ids` is None while its KV is on the device."""

    tokens: list[int]
    seed: int
    pages: list[int] = field(default_factory=list)
    num_computed: int = 0
    arena_ids: tuple[int, ...] | None = None


class FakeRanks:
    """Runs plans at once, hands the answers out later. `fails(step, seq_id)` says which copies go wrong."""

    def __init__(
        self,
        *,
        num_pages: int,
        arena_pages: int,
        page_size: int,
        max_step_tokens: int = 1 << 30,
        vocab: int = 1000,
        fails: Callable[[int, int], bool] = lambda step, seq_id: False,
    ) -> None:
        self.num_pages, self.arena_pages, self.page_size = num_pages, arena_pages, page_size
        self.max_step_tokens, self.vocab, self.fails = max_step_tokens, vocab, fails
        self.kv = [[POISON] * page_size for _ in range(num_pages)]
        self.arena = [[POISON] * page_size for _ in range(arena_pages)]
        self.mirrors: dict[int, Mirror] = {}
        self.next_step = 0
        self.plans: list[StepPlan] = []
        self._answers: deque[tuple[StepResult, set[int], set[int]]] = deque()
        self._used: tuple[set[int], set[int]] = (set(), set())

    def begin(self, plan: StepPlan) -> None:
        """A plan arrives. Effects in the order that `scheduler.plan` gives."""
        assert plan.step == self.next_step, f"step {plan.step} came, {self.next_step} was due"
        self.next_step += 1
        self.plans.append(plan)
        self._used = (set(), set())
        failed: list[int] = []
        for seq_id in plan.finished:
            self._forget(seq_id)
        for park in plan.parks:
            self._park(park, failed, plan.step)
        for restore in plan.restores:
            self._restore(restore, failed, plan.step)
        for new in plan.new:
            self._introduce(new)
        for grant in plan.grants:
            self._grant(grant)
        assert plan.num_tokens <= self.max_step_tokens
        assert len({chunk.seq_id for chunk in plan.chunks}) == len(plan.chunks)
        for chunk in plan.chunks:
            self._compute(chunk)
        tokens = tuple((chunk.seq_id, self._sample(chunk.seq_id)) for chunk in plan.chunks if chunk.sample)
        self._answers.append((StepResult(step=plan.step, tokens=tokens, failed_copies=tuple(failed)), *self._used))

    @property
    def num_unanswered(self) -> int:
        return len(self._answers)

    def answer(self) -> StepResult:
        """The oldest answer that is due."""
        return self._answers.popleft()[0]

    def _forget(self, seq_id: int) -> None:
        mirror = self.mirrors.pop(seq_id)
        self._poison(mirror)
        for slot in mirror.arena_ids or ():
            self.arena[slot] = [POISON] * self.page_size

    def _poison(self, mirror: Mirror) -> None:
        for page in mirror.pages:
            self.kv[page] = [POISON] * self.page_size

    def _park(self, order: ParkOrder, failed: list[int], step: int) -> None:
        mirror = self.mirrors[order.seq_id]
        assert mirror.arena_ids is None, "parked twice"
        num_pages = -(-mirror.num_computed // self.page_size)
        assert list(order.page_ids) == mirror.pages[:num_pages] and len(order.arena_ids) == num_pages > 0
        self._claim_slots(order.arena_ids)
        self._used[0].update(order.page_ids)
        self._used[1].update(order.arena_ids)
        if self.fails(step, order.seq_id):
            failed.append(order.seq_id)
            return
        for page, slot in zip(order.page_ids, order.arena_ids, strict=True):
            self.arena[slot] = list(self.kv[page])
        self._poison(mirror)
        mirror.pages, mirror.arena_ids = [], order.arena_ids

    def _restore(self, order: RestoreOrder, failed: list[int], step: int) -> None:
        mirror = self.mirrors[order.seq_id]
        assert mirror.arena_ids == order.arena_ids, "restored from slots that aren't its own"
        assert len(order.page_ids) == len(order.arena_ids)
        self._claim_pages(order.page_ids)
        self._used[0].update(order.page_ids)
        self._used[1].update(order.arena_ids)
        if self.fails(step, order.seq_id):
            failed.append(order.seq_id)
            return
        for slot, page in zip(order.arena_ids, order.page_ids, strict=True):
            self.kv[page] = self.arena[slot]
            self.arena[slot] = [POISON] * self.page_size
        mirror.pages, mirror.arena_ids = list(order.page_ids), None

    def _introduce(self, new: NewSequence) -> None:
        assert new.seq_id not in self.mirrors
        self.mirrors[new.seq_id] = Mirror(tokens=list(new.tokens), seed=new.sampling.seed)

    def _grant(self, grant: PageGrant) -> None:
        mirror = self.mirrors[grant.seq_id]
        assert grant.page_ids and mirror.arena_ids is None
        self._claim_pages(grant.page_ids)
        for page in grant.page_ids:
            self.kv[page] = [POISON] * self.page_size
        mirror.pages.extend(grant.page_ids)

    def _claim_pages(self, page_ids: tuple[int, ...]) -> None:
        owned = {page for mirror in self.mirrors.values() for page in mirror.pages}
        busy = set().union(*(pages for _, pages, _ in self._answers))
        for page in page_ids:
            assert 0 <= page < self.num_pages
            assert page not in owned, f"page {page} has an owner"
            assert page not in busy, f"page {page} is still used by a plan in flight"

    def _claim_slots(self, arena_ids: tuple[int, ...]) -> None:
        owned = {slot for mirror in self.mirrors.values() for slot in mirror.arena_ids or ()}
        busy = set().union(*(slots for _, _, slots in self._answers))
        for slot in arena_ids:
            assert 0 <= slot < self.arena_pages
            assert slot not in owned and slot not in busy, f"arena slot {slot} is taken"

    def _compute(self, chunk: Chunk) -> None:
        mirror = self.mirrors[chunk.seq_id]
        end = chunk.start + chunk.num_tokens
        assert mirror.arena_ids is None, "computed while parked"
        assert chunk.num_tokens > 0 and chunk.start == mirror.num_computed, "positions have a gap"
        assert end <= len(mirror.tokens), "a position beyond the tokens known"
        assert chunk.sample == (end == len(mirror.tokens))
        assert end <= len(mirror.pages) * self.page_size < end + self.page_size, "too few or too many pages"
        for position in range(chunk.start, end):
            self.kv[mirror.pages[position // self.page_size]][position % self.page_size] = mirror.tokens[position]
        mirror.num_computed = end
        self._used[0].update(mirror.pages)

    def _sample(self, seq_id: int) -> int:
        mirror = self.mirrors[seq_id]
        seen = [self.kv[mirror.pages[at // self.page_size]][at % self.page_size] for at in range(mirror.num_computed)]
        token = next_token(seen, mirror.seed, self.vocab)
        mirror.tokens.append(token)
        return token


class FakeExecutor:
    """`FakeRanks` behind the `Executor` protocol. With `hold` answers come when the test says so, else at once."""

    def __init__(self, ranks: FakeRanks, *, hold: bool = False) -> None:
        self.ranks = ranks
        self.hold = hold
        self.failure: str | None = None
        self.num_stops = 0
        self._due: deque[asyncio.Future[StepResult]] = deque()

    def submit(self, plan: StepPlan) -> asyncio.Future[StepResult]:
        if self.failure is not None:
            raise ExecutorFailed(self.failure)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[StepResult] = loop.create_future()
        self.ranks.begin(plan)
        self._due.append(future)
        if not self.hold:
            loop.call_soon(self.answer)
        return future

    @property
    def num_due(self) -> int:
        return len(self._due)

    def answer(self) -> None:
        """Answer the oldest plan."""
        if self._due:
            self.answer_with(self.ranks.answer())

    def answer_with(self, result: StepResult) -> None:
        """Answer the oldest plan with this, right or wrong."""
        self._due.popleft().set_result(result)

    def fail(self, failure: str) -> None:
        """Lose the ranks: everything due and everything to come fails."""
        self.failure = failure
        while self._due:
            self._due.popleft().set_exception(ExecutorFailed(failure))

    async def stop(self) -> None:
        self.num_stops += 1
        if self.failure is None:
            self.fail("the executor was stopped")
