"""The overflow that demo and `bench parking` share: four long chats that together need 3.5 times the pool."""

from dataclasses import replace

import httpx

from bench.chat import Chat, ChatRun, run_chat
from bench.subprocess_server import ServerError

POOL_TOKENS = 1024
CHAT_TOKENS = 900
URGENT_PRIORITY = 10

_ASK = (
    "Please write a long and detailed answer in plain English. Begin with what a newcomer has to know, go on with "
    "what people who do it for a living think about every day, and end with what usually goes wrong and how they put "
    "it right. Give examples with names, places and numbers wherever you can, and explain each word of the trade when "
    "you first use it. Do not make a list: write whole paragraphs that lead from one to the next, as a patient teacher "
    "would say it to a friend on a long walk. Take as much room as you need. "
)
QUESTIONS = {
    "harbour": _ASK + "Tell me how a large harbour works, from the pilot who meets a ship out at sea to the lorry that "
    "leaves the gate with a container, and who decides which ship may enter first when all the quays are taken.",
    "bakery": _ASK + "Tell me how a village bakery works through one night and one day, from the first flour in the "
    "trough to the last loaf over the counter, and how the baker knows how much to bake before anyone has come in.",
    "railway": _ASK + "Tell me how a railway keeps its timetable, from the signal box and the single track with its "
    "passing loops to the conductor on the platform, and which train has to wait when two of them want the same track.",
    "car park": _ASK
    + "Tell me how a car park of many storeys is run on a market day, from the barrier at the entrance "
    "to the roof, and what the attendant does when every place is taken and more cars keep coming up the ramp.",
}
URGENT = "railway"


def four_chats(max_tokens: int = 1) -> list[Chat]:
    return [
        Chat(name=name, question=text, max_tokens=max_tokens, priority=URGENT_PRIORITY if name == URGENT else 0)
        for name, text in QUESTIONS.items()
    ]


async def sized_chats(client: httpx.AsyncClient, url: str, model: str, chat_tokens: int = CHAT_TOKENS) -> list[Chat]:
    """The four chats, each with as many output tokens as make `chat_tokens` with its prompt."""
    chats = []
    for chat in four_chats():
        run = await run_chat(client, url, model, chat)
        if run.error is not None:
            raise ServerError(f"the server does not answer a chat of {chat.max_tokens} token: {run.error}")
        chats.append(replace(chat, max_tokens=chat_tokens - run.prompt_tokens))
    return chats


def peak_tokens(runs: list[ChatRun]) -> int:
    """What all chats together hold when each has its full length."""
    return sum(run.prompt_tokens + run.completion_tokens for run in runs)
