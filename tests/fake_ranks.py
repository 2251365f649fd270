"""Ranks in one process that mirror every plan and refuse a wrong one; their KV is real enough to spoil.

The fake's pool holds token ids in page slots. A sequence's next token is drawn from what its page table leads to, so a
page that was given away too early, or a copy that went astray, shows as a wrong token, as it would on real ranks.

A copy reads its sources when it lands, long after it began: whoever let somebody write them in between is caught.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from zlib import crc32

from scheduler.plan import (
    Chunk,
    CopyIn,
    CopyOut,
    CopyOutcome,
    CopyResult,
    NewSequence,
    PageGrant,
    PageReset,
    StepPlan,
    StepResult,
)

POISON = -1


def next_token(tokens: Sequence[int], seed: int, vocab: int) -> int:
    """The token after `tokens`: a function of the tokens, the seed (modulo 2**64) and the position alone."""
    text = ",".join(map(str, tokens))
    return crc32(f"{seed % 2**64}:{len(tokens)}:{text}".encode()) % vocab


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
    """What a rank knows of one sequence. `lost`: pages of its table that have gone to another since."""

    tokens: list[int]
    seed: int
    pages: list[int] = field(default_factory=list)
    num_computed: int = 0
    lost: set[int] = field(default_factory=set)


@dataclass
class CopyUnderWay:
    """A copy, the step of its plan, and what its sources held when it began."""

    order: CopyOut | CopyIn
    step: int
    before: list[list[int]]


class FakeRanks:
    """Runs plans at once, hands the answers out later, lands copies when told. `outcome_of` says how copies end."""

    def __init__(
        self,
        *,
        num_pages: int,
        arena_pages: int,
        page_size: int,
        max_step_tokens: int = 1 << 30,
        vocab: int = 1000,
        outcome_of: Callable[[CopyOut | CopyIn], CopyOutcome] = lambda order: CopyOutcome.DONE,
    ) -> None:
        self.num_pages, self.arena_pages, self.page_size = num_pages, arena_pages, page_size
        self.max_step_tokens, self.vocab, self.outcome_of = max_step_tokens, vocab, outcome_of
        self.kv = [[POISON] * page_size for _ in range(num_pages)]
        self.arena = [[POISON] * page_size for _ in range(arena_pages)]
        self.mirrors: dict[int, Mirror] = {}
        self.copies: dict[int, CopyUnderWay] = {}
        self.used_slots: set[int] = set()
        self.next_step = 0
        self.copy_ids: set[int] = set()
        self.plans: list[StepPlan] = []
        self._answers: deque[tuple[StepResult, set[int]]] = deque()

    # ---- plans

    def begin(self, plan: StepPlan) -> None:
        """A plan arrives. Effects in the order that `scheduler.plan` gives."""
        assert plan.step == self.next_step, f"step {plan.step} came, {self.next_step} was due"
        self.next_step += 1
        self.plans.append(plan)
        for seq_id in plan.finished:
            del self.mirrors[seq_id]  # its pages stay as they are: others may begin with them
        self._free_slots(plan.freed_arena_ids)
        orders: list[CopyOut | CopyIn] = [*plan.copies_out, *plan.copies_in]
        for order in orders:
            self._begin_copy(order, plan.step)
        for new in plan.new:
            self._introduce(new)
        for reset in plan.resets:
            self._reset(reset)
        for grant in plan.grants:
            self._grant(grant)
        assert plan.num_tokens <= self.max_step_tokens
        assert len({chunk.seq_id for chunk in plan.chunks}) == len(plan.chunks)
        used = {page for chunk in plan.chunks for page in self._compute(chunk)}
        tokens = tuple((chunk.seq_id, self._sample(chunk.seq_id)) for chunk in plan.chunks if chunk.sample)
        self._answers.append((StepResult(step=plan.step, tokens=tokens), used))

    @property
    def num_unanswered(self) -> int:
        return len(self._answers)

    def answer(self) -> StepResult:
        """The oldest answer that is due."""
        return self._answers.popleft()[0]

    def _free_slots(self, arena_ids: tuple[int, ...]) -> None:
        assert len(set(arena_ids)) == len(arena_ids)
        assert not self._copied_slots().intersection(arena_ids), "a slot under copy was freed"
        assert self.used_slots.issuperset(arena_ids), "a slot was freed that nothing was copied to"
        self.used_slots -= set(arena_ids)
        for slot in arena_ids:
            self.arena[slot] = [POISON] * self.page_size

    def _poison(self, pages: Iterable[int]) -> None:
        for page in pages:
            self.kv[page] = [POISON] * self.page_size

    def _introduce(self, new: NewSequence) -> None:
        assert new.seq_id not in self.mirrors
        self.mirrors[new.seq_id] = Mirror(tokens=list(new.tokens), seed=new.sampling.seed)
        self._set_pages(new.seq_id, new.page_ids, new.num_computed)

    def _reset(self, reset: PageReset) -> None:
        self._set_pages(reset.seq_id, reset.page_ids, reset.num_computed)

    def _set_pages(self, seq_id: int, page_ids: tuple[int, ...], num_computed: int) -> None:
        """Pages that are computed: by a copy, or by another of the family."""
        mirror = self.mirrors[seq_id]
        assert not self._copied_pages().intersection(page_ids), "a page under copy was put into a table"
        assert len(page_ids) == -(-num_computed // self.page_size) and len(set(page_ids)) == len(page_ids)
        mirror.pages, mirror.num_computed, mirror.lost = list(page_ids), num_computed, set()
        assert self._seen(mirror) == mirror.tokens[:num_computed], "the pages hold something else"

    def _grant(self, grant: PageGrant) -> None:
        """Fresh pages. Whoever had one before must not compute with it again."""
        mirror = self.mirrors[grant.seq_id]
        assert grant.page_ids
        self._claim_pages(grant.page_ids)
        assert not set(grant.page_ids) & set(mirror.pages), "it has the page already"
        mirror.pages.extend(grant.page_ids)

    def _claim_pages(self, page_ids: tuple[int, ...]) -> None:
        busy = set().union(*(used for _, used in self._answers))
        copied = self._copied_pages()
        for page in page_ids:
            assert 0 <= page < self.num_pages
            assert page not in busy, f"page {page} is still used by a plan in flight"
            assert page not in copied, f"page {page} is under copy"
        for one in self.mirrors.values():
            one.lost.update(set(page_ids).intersection(one.pages))
        self._poison(page_ids)

    def _compute(self, chunk: Chunk) -> list[int]:
        mirror = self.mirrors[chunk.seq_id]
        end = chunk.start + chunk.num_tokens
        assert not mirror.lost, f"computed with pages {mirror.lost}, which have gone to another"
        assert chunk.num_tokens > 0 and chunk.start == mirror.num_computed, "positions have a gap"
        assert end <= len(mirror.tokens), "a position beyond the tokens known"
        assert chunk.sample == (end == len(mirror.tokens))
        assert end <= len(mirror.pages) * self.page_size < end + self.page_size, "too few or too many pages"
        assert not self._copied_pages().intersection(mirror.pages), "computed while its pages are under copy"
        for position in range(chunk.start, end):
            page = mirror.pages[position // self.page_size]
            assert sum(page in one.pages for one in self.mirrors.values() if not one.lost) == 1, "a shared page"
            self.kv[page][position % self.page_size] = mirror.tokens[position]
        mirror.num_computed = end
        return mirror.pages

    def _seen(self, mirror: Mirror) -> list[int]:
        return [self.kv[mirror.pages[at // self.page_size]][at % self.page_size] for at in range(mirror.num_computed)]

    def _sample(self, seq_id: int) -> int:
        mirror = self.mirrors[seq_id]
        token = next_token(self._seen(mirror), mirror.seed, self.vocab)
        mirror.tokens.append(token)
        return token

    # ---- copies

    @property
    def can_land(self) -> list[int]:
        """Copies that may end now: every plan before their own is answered."""
        oldest = self._answers[0][0].step if self._answers else self.next_step
        return [copy_id for copy_id, copy in self.copies.items() if copy.step <= oldest]

    def land(self, copy_id: int | None = None) -> CopyResult:
        """End a copy, the oldest if none is named."""
        copy_id = self.can_land[0] if copy_id is None else copy_id
        assert copy_id in self.can_land
        copy = self.copies.pop(copy_id)
        order, outcome = copy.order, self.outcome_of(copy.order)
        assert copy.before == self._sources(order), "somebody wrote what was being copied"
        if outcome is CopyOutcome.DONE:
            self._move(order)
        num_bytes = 8 * self.page_size * len(order.page_ids)
        reason = "" if outcome is CopyOutcome.DONE else f"the copy is {outcome.value}"
        return CopyResult(copy_id=copy_id, outcome=outcome, reason=reason, seconds=0.5, num_bytes=num_bytes)

    def _move(self, order: CopyOut | CopyIn) -> None:
        if isinstance(order, CopyIn):
            for slot, page in zip(order.arena_ids, order.page_ids, strict=True):
                self.kv[page] = list(self.arena[slot])
            return
        for page, slot in zip(order.page_ids, order.arena_ids, strict=True):
            self.arena[slot] = self.kv[page]
        # What is out is out: nobody may go on with the pages it was copied from.
        for one in self.mirrors.values():
            one.lost.update(set(order.page_ids).intersection(one.pages))
        self._poison(order.page_ids)

    def _begin_copy(self, order: CopyOut | CopyIn, step: int) -> None:
        assert order.copy_id not in self.copy_ids, "a copy id is used twice"
        self.copy_ids.add(order.copy_id)
        assert len(order.page_ids) == len(order.arena_ids) == len(set(order.page_ids)) == len(set(order.arena_ids)) > 0
        assert not self._copied_slots().intersection(order.arena_ids), "a slot is under copy already"
        assert not self._copied_pages().intersection(order.page_ids), "a page is under copy already"
        if isinstance(order, CopyIn):
            assert self.used_slots.issuperset(order.arena_ids), "copied from a slot that holds nothing"
            self._claim_pages(order.page_ids)
        else:
            assert not self.used_slots.intersection(order.arena_ids), "copied to a slot that is in use"
            self.used_slots.update(order.arena_ids)
        self.copies[order.copy_id] = CopyUnderWay(order, step, self._sources(order))

    def _sources(self, order: CopyOut | CopyIn) -> list[list[int]]:
        if isinstance(order, CopyIn):
            return [list(self.arena[slot]) for slot in order.arena_ids]
        return [list(self.kv[page]) for page in order.page_ids]

    def _copied_pages(self) -> set[int]:
        return {page for copy in self.copies.values() for page in copy.order.page_ids}

    def _copied_slots(self) -> set[int]:
        return {slot for copy in self.copies.values() for slot in copy.order.arena_ids}
