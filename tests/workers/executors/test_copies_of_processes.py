"""Copies through rank processes and their arenas: what is wrong is told with its rank, and nothing of them stays."""

from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from scheduler.plan import Chunk, CopyIn, CopyOut, CopyOutcome, PageGrant, PageReset, StepPlan
from tests.tiny_models import TinyModel, write_tiny_model
from tests.workers.executors.plans import BACK, MOVES, OUT, PAGES_OF, PROMPT, copy_in, copy_out, prefill
from tests.workers.executors.running import Copies, running, shared_memory, spec_of
from workers.spec import RankSpec


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "llama", TinyModel())


def flip_a_bit(spec: RankSpec, rank: int) -> None:
    """In the last byte that a rank's arena holds: the end of the last page of those copied out to ascending slots."""
    path = Path(f"/dev/shm/parkade-arena-{spec.arena_prefix}-{rank}")
    content = bytearray(path.read_bytes())
    last = max(index for index, byte in enumerate(content) if byte)
    with path.open("r+b") as arena:
        arena.seek(last)
        arena.write(bytes([content[last] ^ 1]))


async def test_a_wrong_bit_in_one_ranks_arena_is_told_with_its_name_and_the_sequence_can_be_computed_again(
    model_dir: Path,
) -> None:
    spec = spec_of(model_dir, 2)
    async with running(spec) as executor:
        copies = Copies.of(executor)
        ((_, token), _) = (await executor.submit(prefill())).tokens
        await executor.submit(copy_out(1))
        out = await copies.next()
        flip_a_bit(spec, 1)
        await executor.submit(copy_in(2))
        back = await copies.next()
        dropped = PageReset(seq_id=MOVES, page_ids=(), num_computed=0)
        whole = Chunk(seq_id=MOVES, start=0, num_tokens=len(PROMPT) + 1, sample=True)
        stays = Chunk(seq_id=1, start=len(PROMPT), num_tokens=1, sample=True)
        grant = PageGrant(seq_id=MOVES, page_ids=PAGES_OF[MOVES])
        again = StepPlan(step=3, resets=(dropped,), grants=(grant,), chunks=(stays, whole))
        ((_, expected), (_, computed)) = (await executor.submit(again)).tokens
    assert (out.copy_id, out.outcome, out.reason) == (OUT, CopyOutcome.DONE, "")
    assert (back.copy_id, back.outcome) == (BACK, CopyOutcome.CORRUPT)
    assert back.reason.startswith("rank 1: arena slot 1")
    assert computed == expected  # both have the same prompt
    assert token >= 0
    assert shared_memory(spec) == set()


async def test_a_stop_in_the_middle_of_copies_leaves_no_process_and_no_memory(model_dir: Path) -> None:
    """Copies of the whole pool are under way, both ways, when the executor is stopped."""
    spec = replace(spec_of(model_dir, 2), num_pages=8192, arena_pages=8192)
    whole = tuple(range(8192))
    async with running(spec) as executor:
        pids = executor.pids
        copies = Copies.of(executor)
        await executor.submit(StepPlan(step=0, copies_out=(CopyOut(copy_id=0, page_ids=whole, arena_ids=whole),)))
        first = await copies.next()
        outs = (CopyOut(copy_id=2, page_ids=whole[4096:], arena_ids=whole[4096:]),)
        backs = (CopyIn(copy_id=1, page_ids=whole[:4096], arena_ids=whole[:4096]),)
        await executor.submit(StepPlan(step=1, copies_out=outs, copies_in=backs))
        assert len(shared_memory(spec)) == 2
    assert (first.copy_id, first.outcome) == (0, CopyOutcome.DONE)
    assert shared_memory(spec) == set()
    assert not any(psutil.pid_exists(pid) for pid in pids)
