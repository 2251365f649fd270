"""`parkade demo`: four long chats at once in a pool made for one, and proof of what became of them."""

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import httpx
import typer
from rich.console import Console

from bench import options
from bench.chat import ChatRun, run_chat
from bench.failing import one_line_errors
from bench.four_chats import CHAT_TOKENS, POOL_TOKENS, sized_chats
from bench.live_table import LiveTable, num_parks
from bench.report import commit, machine, write_json
from bench.subprocess_server import RunningServer, parkade_server
from bench.verdict import Check, judge_no_parking, judge_parking


def run(
    model: options.Model = options.DEFAULT_MODEL,
    json_file: options.JsonFile = None,
    park: Annotated[bool, typer.Option("--park/--no-park", help="What today's servers do instead: refuse.")] = True,
    port: Annotated[int | None, typer.Option(help="Port of the server it starts.", show_default="a free one")] = None,
) -> None:
    """Four long chats at once in a KV pool made for one: all end in full, unchanged, the urgent one first.

    Starts a server of two ranks with a pool of 1,024 tokens, runs each chat alone, then all four at once, and compares.
    The exit code is 0 only if every claim held.
    """
    with one_line_errors():
        raise typer.Exit(run_demo(model, park=park, port=port, json_file=json_file, console=Console()))


def run_demo(model: str, *, park: bool, port: int | None, json_file: Path | None, console: Console) -> int:
    """Start a server of two ranks, run the chats, print the checks. The exit code: 0 only if every check held."""
    flags = ["--tensor-parallel-size", "2", "--kv-pool-tokens", str(POOL_TOKENS)]
    if not park:
        flags.append("--no-park")
    console.print(f"Starting a server: two ranks, a KV pool of {POOL_TOKENS} tokens, parking {'on' if park else 'off'}")
    with parkade_server(model, *flags, port=port) as server:
        console.print(f"Ready after {server.ready_s:.1f} s at {server.url}", highlight=False)
        alone, together = asyncio.run(_run_chats(server, park=park, console=console))
    checks = judge_parking(together, {run.chat.name: run for run in alone}) if park else judge_no_parking(together)
    _print_checks(checks, console)
    held = all(check.held for check in checks)
    write_json(json_file, _facts(alone, together, checks, park=park, held=held))
    return 0 if held else 1


async def _run_chats(server: RunningServer, *, park: bool, console: Console) -> tuple[list[ChatRun], list[ChatRun]]:
    """Each chat alone (the texts to compare with; not needed without parking), then all at once."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(limits=limits, trust_env=False) as client:
        chats = await sized_chats(client, server.url, server.model)
        alone: list[ChatRun] = []
        if park:
            with LiveTable(console, "Each chat alone").shown() as table:
                alone = [await run_chat(client, server.url, server.model, chat, watch=table.watch) for chat in chats]
        title = f"All at once: {len(chats)} chats of {CHAT_TOKENS} tokens, a pool of {POOL_TOKENS}"
        with LiveTable(console, title).shown() as table:
            for chat in chats:
                table.watch(ChatRun(chat=chat))
            together = await asyncio.gather(
                *(run_chat(client, server.url, server.model, chat, watch=table.watch) for chat in chats)
            )
    return alone, list(together)


def _print_checks(checks: list[Check], console: Console) -> None:
    for check in checks:
        word = "[green]held  [/green]" if check.held else "[red]failed[/red]"
        console.print(f"{word} {check.claim} ({check.detail})", highlight=False)


def _facts(
    alone: list[ChatRun], together: list[ChatRun], checks: list[Check], *, park: bool, held: bool
) -> dict[str, object]:
    texts = {run.chat.name: run.text for run in alone}
    return {
        "demo": "parking" if park else "no parking",
        "commit": commit(),
        "machine": machine(),
        "pool_tokens": POOL_TOKENS,
        "chats": [_chat_facts(run, texts.get(run.chat.name)) for run in together],
        "alone_s": {run.chat.name: _seconds(run) for run in alone},
        "checks": [asdict(check) for check in checks],
        "held": held,
    }


def _chat_facts(run: ChatRun, text_alone: str | None) -> dict[str, object]:
    return {
        "name": run.chat.name,
        "priority": run.chat.priority,
        "status": run.status,
        "state": run.state,
        "prompt_tokens": run.prompt_tokens,
        "completion_tokens": run.completion_tokens,
        "max_tokens": run.chat.max_tokens,
        "finish_reason": run.finish_reason,
        "error": run.error,
        "parks": num_parks(run),
        "same_text_as_alone": None if text_alone is None else text_alone == run.text,
        "seconds": _seconds(run),
    }


def _seconds(run: ChatRun) -> float | None:
    return None if run.ended is None else round(run.ended - run.started, 3)
