"""Parks on order, in process: one request parked every so many tokens, and one of several parked and resumed later."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.exactness.bank import BankEntry, submission_of
from bench.exactness.outcome import Outcome
from bench.exactness.ranks import RUN_TIMEOUT_S, ExactRanks
from bench.local_group import LocalGroup, Stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Forced:
    """Sizes in tokens. (a): `every` for each of `run_tokens`. (b): parked at `park_at`, resumed when all others have
    `resume_at`."""

    run_tokens: int = 800
    every: int = 200
    beside_tokens: int = 1000
    park_at: int = 204
    resume_at: int = 700

    def scaled(self, scale: float) -> "Forced":
        return Forced(
            run_tokens=int(self.run_tokens * scale),
            every=max(1, int(self.every * scale)),
            beside_tokens=int(self.beside_tokens * scale),
            park_at=int(self.park_at * scale),
            resume_at=int(self.resume_at * scale),
        )


async def parked_again_and_again(
    ranks: ExactRanks, entries: Sequence[BankEntry], sizes: Forced, *, copies: bool
) -> Outcome:
    """Each request alone, then alone with a park every `every` tokens: by copy, or by dropping its pages."""
    outcome = Outcome()
    config = ranks.limits if copies else replace(ranks.limits, arena_pages=0)
    for number, entry in enumerate(entries):
        submission = submission_of(entry, f"run-{number}", sizes.run_tokens)
        alone = await ranks.solo(submission)
        async with ranks.engine(config, on_event=outcome.hear) as group:
            stream = group.submit(submission)
            for at in range(sizes.every, sizes.run_tokens, sizes.every):
                await has_tokens(group, [stream], at)
                await park(group, stream)
                group.unpark(stream.request_id)
            await group.ended([stream], RUN_TIMEOUT_S)
        outcome.deeds["requests"] += 1
        outcome.compare(f"run {number}, a park every {sizes.every}", stream, 0, alone)
    return outcome


async def parked_beside_others(
    ranks: ExactRanks, entries: Sequence[BankEntry], sizes: Forced, *, copies: bool
) -> Outcome:
    """All at once; the second is parked in the middle and resumed when the others are well ahead."""
    outcome = Outcome()
    submissions = [submission_of(entry, f"beside-{n}", sizes.beside_tokens) for n, entry in enumerate(entries)]
    alone = [await ranks.solo(submission) for submission in submissions]
    config = ranks.limits if copies else replace(ranks.limits, arena_pages=0)
    async with ranks.engine(config, on_event=outcome.hear) as group:
        streams = [group.submit(submission) for submission in submissions]
        parked, others = streams[1], [streams[0], *streams[2:]]
        await has_tokens(group, [parked], sizes.park_at)
        await park(group, parked)
        await has_tokens(group, others, sizes.resume_at)
        group.unpark(parked.request_id)
        await group.ended(streams, RUN_TIMEOUT_S)
    for number, stream in enumerate(streams):
        outcome.deeds["requests"] += 1
        outcome.compare(f"stream {number} of {len(streams)}, the second parked", stream, 0, alone[number])
    return outcome


async def has_tokens(group: LocalGroup, streams: Sequence[Stream], num_tokens: int) -> None:
    """Each of them has as many, at least."""
    await group.until(lambda: min(stream.num_tokens for stream in streams) >= num_tokens, RUN_TIMEOUT_S)


async def park(group: LocalGroup, stream: Stream) -> None:
    """Park by order and wait until it is parked, on every rank. Raises `OrderRefused` and `StreamError`."""
    group.park(stream.request_id)

    def is_parked() -> bool:
        row = group.row(stream.request_id)
        return row is None or row.state == "parked"

    await group.until(is_parked, RUN_TIMEOUT_S)
