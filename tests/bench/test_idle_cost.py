"""The idle-cost report: pairs that take turns, a ratio of pairs, and bars for both."""

from pathlib import Path

import pytest

from bench.engine_arm import EngineShape, engine_config, rank_specs
from bench.idle_cost import OFF, ON, SHAPES, IdleCostBench, IdleSamples, make_report, pairs_of
from bench.prompts import Prompt
from bench.streams import StreamRecord

BENCH = IdleCostBench(model="m", model_dir=Path("m"), pairs=2, answer_tokens=5)


class EvenArm:
    """A token every second."""

    def __init__(self, name: str, log: list[tuple[str, Prompt]]) -> None:
        self.name, self._log = name, log

    async def stream(self, prompt: Prompt, max_tokens: int) -> StreamRecord:
        self._log.append((self.name, prompt))
        arrivals = tuple((float(at), 1) for at in range(1, max_tokens + 1))
        return StreamRecord(started=0.0, arrivals=arrivals, prompt_tokens=1, completion_tokens=max_tokens)


class OtherPrompts:
    count = 0

    def make(self, num_tokens: int) -> Prompt:
        self.count += 1
        return Prompt(text=str(self.count), tokens=(1,) * num_tokens)

    def make_many(self, count: int, num_tokens: int) -> list[Prompt]:
        return [self.make(num_tokens) for _ in range(count)]


async def test_a_pair_shares_its_prompt_and_who_is_first_turns() -> None:
    log: list[tuple[str, Prompt]] = []
    samples = IdleSamples()
    await pairs_of([EvenArm(ON, log), EvenArm(OFF, log)], OtherPrompts(), BENCH, samples)
    assert [name for name, _ in log] == [OFF, ON, ON, OFF, OFF, ON]
    assert [prompt.text for _, prompt in log] == ["1", "1", "2", "2", "3", "3"]
    assert samples.rates == {ON: [1.0, 1.0], OFF: [1.0, 1.0]}


@pytest.mark.parametrize(("on", "pairs", "held"), [(99.0, 10, True), (98.9, 10, False), (99.0, 9, False)])
def test_parking_may_cost_one_percent_over_ten_pairs(on: float, pairs: int, held: bool) -> None:
    samples = IdleSamples(rates={ON: [on] * pairs, OFF: [100.0] * pairs})
    assert make_report(BENCH, samples).held is held


def test_only_the_arm_with_parking_has_an_arena() -> None:
    configs = {name: engine_config(name, shape, 512) for name, shape in SHAPES.items()}
    assert [(configs[name].park, configs[name].arena_pages) for name in (ON, OFF)] == [(True, 1024), (False, 0)]
    specs = rank_specs(Path("m"), EngineShape(world_size=1, num_threads=2, pool_tokens=64, arena_tokens=33), 256)
    assert [(spec.arena_pages, spec.max_model_len) for spec in specs] == [(3, 256)]
