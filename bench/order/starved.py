"""A big chat that first-fit starves: held, and wanted back while the pool has no room for it, and behind it a stream of
held small ones that have. Pure; a seed gives them again.

Parks by order count nothing in the line, so all are of one tier and one count of parks: what decides is how often the
big one may be passed.
"""

import random

from bench.order.chats import SimChat

NUM_SMALL = 36
STARVED = "starved"
# Until the next one comes, seconds for each prompt token: enough for a prompt to be computed, and its chat to be held.
PROMPT_S = 0.002


def draw_starved(seed: int, pool_tokens: int) -> list[SimChat]:
    """The big one first, the small ones in the order in which they come back, and the one that fills the pool last.

    Sizes are shares of the pool: the big one does not fit beside three of the small ones.
    """
    draw = random.Random(f"{STARVED} {seed}")

    def tokens(least: float, most: float) -> int:
        return int(pool_tokens * draw.uniform(least, most))

    big_prompt, filler_prompt = tokens(0.66, 0.72), tokens(0.36, 0.42)
    at = PROMPT_S * big_prompt
    comings = []
    for prompt in [tokens(0.09, 0.12) for _ in range(NUM_SMALL)]:
        comings.append((at, prompt))
        at += PROMPT_S * prompt
    wanted_at = back_at = at + PROMPT_S * filler_prompt
    chats = [SimChat(prompt_tokens=big_prompt, answer_tokens=draw.randint(60, 120), at=0.0, back_at=wanted_at)]
    for comes_at, prompt in comings:
        back_at += draw.uniform(0.3, 0.7)
        answer = draw.randint(120, 240)
        chats.append(SimChat(prompt_tokens=prompt, answer_tokens=answer, at=comes_at, back_at=back_at))
    return [*chats, SimChat(prompt_tokens=filler_prompt, answer_tokens=draw.randint(300, 400), at=at)]
