"""One simulated run: the real admission and engine over ranks that only take time, until every chat has ended."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from bench.engine_arm import MAX_STEP_TOKENS, PAGE_SIZE
from bench.exactness.forced import has_tokens, park
from bench.local_group import GATEWAY_ID, LocalGroup, Stream
from bench.order.chats import SimChat
from bench.order.model_ranks import CostModel, ModelRanks
from bench.order.virtual_loop import run_virtual
from bench.streams import StreamError
from scheduler.admission import AdmissionPolicy
from scheduler.engine.config import EngineConfig
from scheduler.messages import Notice, Submission
from scheduler.sampling import SamplingParams, StopRules

PATIENCE_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimResult:
    """Virtual seconds. `longest_wait_s`: the longest single stretch in which a chat stood still, parked or queued."""

    makespan_s: float
    longest_wait_s: float
    parks: int
    num_chats: int
    num_whole: int


def simulate(chats: Sequence[SimChat], pool_tokens: int, policy: AdmissionPolicy, costs: CostModel) -> SimResult:
    """Raises `StreamError` when a chat has not ended after an hour of virtual time, or is not held when it should."""
    return run_virtual(_simulate(chats, pool_tokens, policy, costs))


async def _simulate(chats: Sequence[SimChat], pool_tokens: int, policy: AdmissionPolicy, costs: CostModel) -> SimResult:
    num_pages = pool_tokens // PAGE_SIZE
    config = EngineConfig(
        group_id="simulated",
        num_pages=num_pages,
        arena_pages=len(chats) * num_pages,
        page_size=PAGE_SIZE,
        max_running=len(chats),
        max_step_tokens=MAX_STEP_TOKENS,
        max_model_len=pool_tokens + 1,
    )
    clock = asyncio.get_running_loop().time
    async with LocalGroup.running(config, ModelRanks(costs), policy=policy, now=clock) as group:
        streams, holds = [], []
        for number, chat in enumerate(chats):
            await asyncio.sleep(max(0.0, chat.at - clock()))
            streams.append(group.submit(_submission(number, chat)))
            if chat.back_at > 0:
                holds.append(asyncio.create_task(_hold(group, streams[-1], chat.back_at)))
        await asyncio.gather(group.ended(streams, PATIENCE_S), *holds)
    return SimResult(
        makespan_s=max(stream.ended_at or 0.0 for stream in streams),
        longest_wait_s=max(longest_wait(stream, chat.back_at) for stream, chat in zip(streams, chats, strict=True)),
        parks=sum(stream.parks for stream in streams),
        num_chats=len(streams),
        num_whole=sum(stream.is_whole for stream in streams),
    )


async def _hold(group: LocalGroup, stream: Stream, back_at: float) -> None:
    """From its first token on, until `back_at`. Raises `StreamError` when it is not held by then."""
    await has_tokens(group, [stream], 1)
    await park(group, stream)
    if group.now() > back_at:
        raise StreamError(f"{stream.request_id} was held at {group.now():g} s only, and wanted back at {back_at:g} s")
    await asyncio.sleep(back_at - group.now())
    group.unpark(stream.request_id)


def _submission(number: int, chat: SimChat) -> Submission:
    return Submission(
        request_id=f"chat {number}",
        gateway_id=GATEWAY_ID,
        prompt_tokens=(1,) * chat.prompt_tokens,
        sampling=SamplingParams(temperature=0.0),
        stop=StopRules(max_tokens=chat.answer_tokens, ignore_eos=True),
    )


def longest_wait(stream: Stream, back_at: float = 0.0) -> float:
    """From each park to the resume after it, and from the start to the first token. Until `back_at` it was held: it
    waited for nobody."""
    waits = [stream.arrivals[0][0] - stream.started] if stream.arrivals else []
    parked_at = None
    for at, notice in stream.notices:
        if notice is Notice.PARKED:
            parked_at = at
        elif notice is Notice.RESUMED and parked_at is not None:
            waits.append(at - max(parked_at, back_at))
            parked_at = None
    return max(waits, default=0.0)
