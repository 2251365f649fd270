"""The simulator: what steps and copies cost, and runs of the real cores that end, repeat and are judged."""

import asyncio

import pytest

from bench.local_group import Choice, Stream
from bench.order.chats import KINDS, NUM_CHATS, OVERFLOW, SimChat, draw_chats
from bench.order.command import BARE, FIRST_FIT, LINES, OURS, STRICT, OrderBench, make_report, run_seeds
from bench.order.model_ranks import CostModel, ModelRanks
from bench.order.simulate import SimResult, longest_wait, simulate
from bench.order.virtual_loop import run_virtual
from scheduler.admission import AdmissionPolicy
from scheduler.messages import Notice, Submission
from scheduler.plan import Chunk, CopyOut, CopyResult, StepPlan
from scheduler.sampling import SamplingParams, StopRules

COSTS = CostModel(step_s=1.0, position_s=0.1, context_s=0.01, copy_s=2.0, copy_page_s=0.5)
CHUNK = Chunk(seq_id=4, start=9, num_tokens=1, sample=True)


def test_a_step_costs_its_positions_and_what_they_look_at() -> None:
    assert COSTS.step(StepPlan(step=0)) == 0.0
    assert COSTS.step(StepPlan(step=0, chunks=(CHUNK,))) == pytest.approx(1.0 + 0.1 + 10 * 0.01)
    assert COSTS.copy(6) == 5.0


def test_steps_run_one_after_the_other_and_a_copy_beside_them() -> None:
    async def main() -> list[tuple[str, float]]:
        loop, ranks, seen = asyncio.get_running_loop(), ModelRanks(COSTS), []

        def on_copy(result: CopyResult) -> None:
            seen.append((f"copy {result.copy_id}", loop.time()))

        ranks.listen(on_copy)
        copy = CopyOut(copy_id=7, page_ids=(1, 2), arena_ids=(1, 2))
        first = ranks.submit(StepPlan(step=0, chunks=(CHUNK,)))
        second = ranks.submit(StepPlan(step=1, chunks=(CHUNK,), copies_out=(copy,)))
        for name, answer in (("step", first), ("step", second)):
            assert (await answer).tokens == ((4, 7),)
            seen.append((name, round(loop.time(), 6)))
        await asyncio.sleep(10.0)
        return seen

    # The copy begins where the second step does, at 1.2, and takes 3 s.
    assert run_virtual(main()) == [("step", 1.2), ("step", 2.4), ("copy 7", pytest.approx(4.2))]


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("seed", range(5))
def test_chats_fit_alone_and_not_together_and_a_seed_repeats_them(kind: str, seed: int) -> None:
    chats = draw_chats(kind, seed, 8192)
    assert chats == draw_chats(kind, seed, 8192)
    assert len(chats) == NUM_CHATS
    assert all(chat.num_tokens <= 8192 and 0 <= chat.at <= 2 for chat in chats)
    assert sum(chat.num_tokens for chat in chats) >= OVERFLOW * 8192


def test_a_simulated_run_parks_ends_whole_and_is_the_same_again() -> None:
    chats = [SimChat(prompt_tokens=20, answer_tokens=150 + 10 * n, at=0.1 * n) for n in range(4)]
    runs = [simulate(chats, 512, AdmissionPolicy(), CostModel()) for _ in range(2)]
    assert runs[0] == runs[1]
    assert (runs[0].num_whole, runs[0].parks > 0) == (4, True)
    assert 0 < runs[0].longest_wait_s < runs[0].makespan_s


def test_a_wait_is_from_park_to_resume_or_from_the_start_to_the_first_token() -> None:
    submission = Submission(
        request_id="r",
        gateway_id="g",
        prompt_tokens=(1,),
        sampling=SamplingParams(),
        stop=StopRules(max_tokens=9),
    )
    stream = Stream(submission=submission, started=1.0, choices=[Choice()])
    assert longest_wait(stream) == 0.0
    stream.arrivals = [(4.0, 1), (9.0, 1)]
    assert longest_wait(stream) == 3.0
    stream.notices = [(5.0, Notice.PARKED), (12.0, Notice.RESUMED), (13.0, Notice.PARKED), (14.0, Notice.RESUMED)]
    assert longest_wait(stream) == 7.0
    # Held until 10.5: only from then on did it wait for anybody.
    assert longest_wait(stream, 10.5) == 3.0
    assert longest_wait(stream, 8.5) == 3.5


def test_all_lines_get_the_same_chats_and_a_report_of_a_small_run_is_whole() -> None:
    bench = OrderBench(pool_tokens=1088, seeds=1, kinds=("uniform",), processes=1)
    results = {"uniform": run_seeds(bench, "uniform")}
    assert set(results["uniform"]) == set(LINES) == {OURS, FIRST_FIT, STRICT, BARE}
    report = make_report(bench, results)
    (whole,) = (bar for bar in report.bars if bar.name.endswith("ended in full"))
    assert (whole.value, whole.held) == (NUM_CHATS * len(LINES), True)


def result(wait: float, makespan: float, whole: int = NUM_CHATS) -> SimResult:
    return SimResult(makespan_s=makespan, longest_wait_s=wait, parks=1, num_chats=NUM_CHATS, num_whole=whole)


@pytest.mark.parametrize(
    ("ours", "missed"),
    [
        (result(10.0, 100.0), []),
        (result(10.1, 100.0), ["uniform: longest wait over first-fit's"]),
        (result(10.0, 105.1), ["uniform: makespan over the best"]),
        (result(10.0, 100.0, whole=7), ["uniform: chats that ended in full"]),
    ],
)
def test_our_line_is_held_against_the_others(ours: SimResult, missed: list[str]) -> None:
    others = {line: [result(10.0, 100.0)] for line in (FIRST_FIT, STRICT, BARE)}
    report = make_report(OrderBench(seeds=1), {"uniform": {OURS: [ours], **others}})
    assert [bar.name for bar in report.bars if not bar.held] == missed
