"""What the tests on a real Ray ask for, and how they read it."""

import asyncio
from typing import Any

from scheduler.messages import Submission, TokenEvent
from scheduler.sampling import SamplingParams, StopRules

NUM_TOKENS = 90


def submission(kind: str, number: int, num_prompt: int = 40, owner: str = "") -> Submission:
    return Submission(
        request_id=f"{kind}-{number}",
        gateway_id="gateway",
        prompt_tokens=tuple((7 * number + position) % 250 + 3 for position in range(num_prompt)),
        sampling=SamplingParams(temperature=1.0, seed=number),
        stop=StopRules(max_tokens=NUM_TOKENS, ignore_eos=True),
        owner=owner,
    )


async def until_finished(client: Any, count: int) -> tuple[dict[str, list[int]], list[TokenEvent]]:
    """Tokens by request, and the last events, of the next `count` requests that end."""
    tokens: dict[str, list[int]] = {}
    ends: list[TokenEvent] = []
    async with asyncio.timeout(120):
        async for batch in client:
            for event in batch:
                tokens.setdefault(event.request_id, []).extend(event.tokens)
                if event.finish is not None:
                    ends.append(event)
            if len(ends) == count:
                break
    return tokens, ends
