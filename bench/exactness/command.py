"""`parkade bench exactness`: every stream, whatever was done to it and its neighbours, against its solo run.

(a) a park forced every 200 tokens; (b) one of four streams parked and resumed later, in process and over HTTP;
(c) random schedules on a tiny model and on the real one. On one rank and on two. In process tokens are compared, over
HTTP bytes; a text is a function of its tokens.
"""

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httpx
from rich.console import Console

from bench.chat import Chat
from bench.engine_arm import PAGE_SIZE, EngineShape
from bench.exactness.bank import SoloBook, make_bank
from bench.exactness.forced import Forced, parked_again_and_again, parked_beside_others
from bench.exactness.outcome import Outcome
from bench.exactness.over_http import HttpPark, park_over_http
from bench.exactness.ranks import exact_ranks
from bench.exactness.report import make_report
from bench.exactness.run_schedule import run_schedule
from bench.exactness.schedule import Bounds, draw_schedule
from bench.four_chats import QUESTIONS
from bench.report import exit_code
from bench.subprocess_server import parkade_server
from bench.tiny_model import TinyModel, vocab_size_of, write_tiny_model

PART_FORCED, PART_BESIDE, PART_HTTP, PART_TINY, PART_MODEL = "forced", "beside", "http", "tiny", "model"
PARTS = (PART_FORCED, PART_BESIDE, PART_HTTP, PART_TINY, PART_MODEL)
# Ranks to threads a rank: the same two cores.
THREADS = {1: 2, 2: 1}
POOL_TOKENS, ARENA_TOKENS, MODEL_LEN = 8192, 8192, 2048
TINY = TinyModel(vocab_size=512, max_positions=512)

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactnessBench:
    model: str
    model_dir: Path
    parts: tuple[str, ...] = PARTS
    ranks: tuple[int, ...] = (1, 2)
    tiny_schedules: int = 200
    model_schedules: int = 20
    first_seed: int = 0
    sizes: Forced = field(default_factory=Forced)


@dataclass(slots=True)
class ExactnessResults:
    """By (part, ranks)."""

    outcomes: dict[tuple[str, int], Outcome] = field(default_factory=dict)
    over_http: dict[int, HttpPark] = field(default_factory=dict)


def run_exactness_bench(bench: ExactnessBench, *, json_file: Path | None, check: bool, console: Console) -> int:
    results = asyncio.run(_measure(bench, lambda line: console.print(line, style="dim")))
    report = make_report(settings_of(bench), results.outcomes, results.over_http)
    report.print(console)
    report.write(json_file)
    return exit_code(report.bars, check=check)


def settings_of(bench: ExactnessBench) -> dict[str, object]:
    return {
        "model": bench.model,
        "parts": bench.parts,
        "ranks": bench.ranks,
        "tiny_schedules": bench.tiny_schedules,
        "model_schedules": bench.model_schedules,
        "first_seed": bench.first_seed,
        "sizes": asdict(bench.sizes),
    }


async def _measure(bench: ExactnessBench, tell: Tell) -> ExactnessResults:
    results = ExactnessResults()
    with tempfile.TemporaryDirectory(prefix="parkade-bench-") as scratch:
        tiny_dir = write_tiny_model(Path(scratch) / "tiny", TINY)
        for num_ranks in bench.ranks:
            if {PART_FORCED, PART_BESIDE} & set(bench.parts):
                await _forced_parts(bench, num_ranks, results, tell)
            if PART_TINY in bench.parts:
                tell(f"TP{num_ranks}: {bench.tiny_schedules} schedules on a tiny model")
                outcome = await _schedules(bench, tiny_dir, num_ranks, bench.tiny_schedules, tell)
                results.outcomes[PART_TINY, num_ranks] = outcome
            if PART_MODEL in bench.parts:
                tell(f"TP{num_ranks}: {bench.model_schedules} schedules on {bench.model}")
                outcome = await _schedules(bench, bench.model_dir, num_ranks, bench.model_schedules, tell)
                results.outcomes[PART_MODEL, num_ranks] = outcome
            if PART_HTTP in bench.parts:
                results.over_http[num_ranks] = await _http_part(bench, num_ranks, tell)
    return results


async def _forced_parts(bench: ExactnessBench, num_ranks: int, results: ExactnessResults, tell: Tell) -> None:
    shape = EngineShape(
        world_size=num_ranks, num_threads=THREADS[num_ranks], pool_tokens=POOL_TOKENS, arena_tokens=ARENA_TOKENS
    )
    # Greedy and drawn requests in turn.
    bank = make_bank(size=4, prompt_tokens=(40, 80), vocab_size=vocab_size_of(bench.model_dir), first_id=100)
    async with exact_ranks(bench.model_dir, shape, MODEL_LEN) as ranks:
        for part, work, entries in (
            (PART_FORCED, parked_again_and_again, bank[:2]),
            (PART_BESIDE, parked_beside_others, bank),
        ):
            if part not in bench.parts:
                continue
            total = results.outcomes[part, num_ranks] = Outcome()
            for copies in (True, False):
                tell(f"TP{num_ranks}: {part}, parks {'by copy' if copies else 'by recompute'}")
                total.add(await work(ranks, entries, bench.sizes, copies=copies))


async def _schedules(bench: ExactnessBench, model_dir: Path, num_ranks: int, count: int, tell: Tell) -> Outcome:
    shape = EngineShape(world_size=num_ranks, num_threads=THREADS[num_ranks], pool_tokens=4096, arena_tokens=4096)
    bank = make_bank(size=16, prompt_tokens=(5, 120), vocab_size=vocab_size_of(model_dir))
    bounds = Bounds(
        prompt_lengths=tuple(len(entry.prompt) for entry in bank),
        max_answer=96,
        num_pages=shape.num_pages,
        arena_pages=shape.arena_pages,
        page_size=PAGE_SIZE,
        max_step_tokens=512,
    )
    total = Outcome()
    async with exact_ranks(model_dir, shape, 512) as ranks:
        book = SoloBook(bank, bounds.max_answer, ranks.solo)
        for seed in range(bench.first_seed, bench.first_seed + count):
            total.add(await run_schedule(ranks, draw_schedule(seed, bounds), bank, book))
            if (seed + 1) % max(1, count // 4) == 0:
                tell(f"TP{num_ranks}: schedule {seed}: {total.num_streams} streams, {len(total.differing)} differ")
    return total


async def _http_part(bench: ExactnessBench, num_ranks: int, tell: Tell) -> HttpPark:
    tell(f"TP{num_ranks}: over HTTP")
    options = ("--tensor-parallel-size", str(num_ranks), "--num-threads", str(THREADS[num_ranks]))
    chats = [Chat(name=name, question=text, max_tokens=bench.sizes.beside_tokens) for name, text in QUESTIONS.items()]
    with parkade_server(bench.model, *options, "--kv-pool-tokens", str(POOL_TOKENS)) as server:
        async with httpx.AsyncClient(limits=httpx.Limits(max_connections=None), trust_env=False) as client:
            return await park_over_http(client, server, chats, bench.sizes)
