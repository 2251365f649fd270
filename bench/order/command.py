"""`parkade bench order`: how long the unluckiest chat stands still, by how strictly the line of the parked is kept.

Our line lets one that does not fit be passed eight times; first-fit lets it be passed for ever; a strict line never.
Bare first-fit, told beside them, does without what else keeps waits short: neither parks nor age lift anybody.
Eight uneven chats seldom pass anybody so often: the limit is shown by a big chat that more than eight small ones pass.
Simulated: admission and engine are the real ones, ranks take time by a cost model. The same chats for all lines.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console

from bench.bars import Bar
from bench.order.chats import KINDS, SimChat, draw_chats
from bench.order.model_ranks import CostModel
from bench.order.simulate import SimResult, simulate
from bench.order.starved import STARVED, draw_starved
from bench.report import Report, exit_code
from bench.spread import Spread, paired_ratio, spread
from scheduler.admission import AdmissionPolicy

OURS, FIRST_FIT, STRICT, BARE = "our line", "first-fit", "strict line", "bare first-fit"
NEVER = 1_000_000_000
LINES = {
    OURS: AdmissionPolicy(),
    FIRST_FIT: AdmissionPolicy(max_passes=NEVER),
    STRICT: AdmissionPolicy(max_passes=0),
    BARE: AdmissionPolicy(max_passes=NEVER, promote_every=NEVER, age_step_s=NEVER),
}
OTHERS = (FIRST_FIT, STRICT, BARE)
# Medians over seeds: bounding the wait must not cost more of the makespan than this, against the better of the others.
WAIT_RATIO, MAKESPAN_RATIO = 1.0, 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderBench:
    pool_tokens: int = 8192
    seeds: int = 60
    kinds: tuple[str, ...] = (*KINDS, STARVED)
    processes: int = 2
    costs: CostModel = field(default_factory=CostModel)


# By line, one entry a seed.
Results = dict[str, list[SimResult]]


def run_order_bench(bench: OrderBench, *, json_file: Path | None, check: bool, console: Console) -> int:
    results = {}
    for kind in bench.kinds:
        console.print(f"{kind}: {bench.seeds} seeds, each with {len(LINES)} lines", style="dim")
        results[kind] = run_seeds(bench, kind)
    report = make_report(bench, results)
    report.print(console)
    report.write(json_file)
    return exit_code(report.bars, check=check)


def run_seeds(bench: OrderBench, kind: str) -> Results:
    jobs = [(bench, kind, seed) for seed in range(bench.seeds)]
    if bench.processes == 1:
        by_seed = [run_seed(*job) for job in jobs]
    else:
        with ProcessPoolExecutor(bench.processes) as pool:
            by_seed = list(pool.map(run_seed, *zip(*jobs, strict=True)))
    return {line: [result[line] for result in by_seed] for line in LINES}


def run_seed(bench: OrderBench, kind: str, seed: int) -> dict[str, SimResult]:
    """The same chats with each line."""
    chats = chats_of(kind, seed, bench.pool_tokens)
    return {line: simulate(chats, bench.pool_tokens, policy, bench.costs) for line, policy in LINES.items()}


def chats_of(kind: str, seed: int, pool_tokens: int) -> list[SimChat]:
    return draw_starved(seed, pool_tokens) if kind == STARVED else draw_chats(kind, seed, pool_tokens)


def make_report(bench: OrderBench, results: Mapping[str, Results]) -> Report:
    settings: dict[str, object] = {
        "chats": {kind: len(chats_of(kind, 0, bench.pool_tokens)) for kind in results},
        "pool_tokens": bench.pool_tokens,
        "seeds": bench.seeds,
        "lines": {line: asdict(policy) for line, policy in LINES.items()},
        "costs": asdict(bench.costs),
    }
    report = Report(title="order (simulated)", settings=settings)
    for kind, by_line in results.items():
        _add(report, kind, by_line, "longest single wait", lambda result: result.longest_wait_s)
        _add(report, kind, by_line, "makespan", lambda result: result.makespan_s)
        for line, runs in by_line.items():
            report.add(f"{kind}: parks", line, "parks", spread([float(run.parks) for run in runs]))
        report.facts[f"{kind}: seeds in which our line ever held anybody back"] = len(_held_back(by_line))
        report.bars += order_bars(kind, by_line)
        if kind == STARVED:
            report.bars += starved_bars(by_line)
    return report


def _add(report: Report, kind: str, by_line: Results, what: str, value: Callable[[SimResult], float]) -> None:
    for line, runs in by_line.items():
        report.add(f"{kind}: {what}", line, "s", spread([value(run) for run in runs]))
    for other in OTHERS:
        report.add(f"{kind}: {what}", f"{OURS} / {other}", "ratio", _ratio(by_line, OURS, other, value))


def _ratio(by_line: Results, above: str, below: str, value: Callable[[SimResult], float]) -> Spread:
    return paired_ratio([value(run) for run in by_line[above]], [value(run) for run in by_line[below]])


def order_bars(kind: str, by_line: Results) -> list[Bar]:
    """Everybody ends; the wait is no longer than first-fit's, the makespan close to the best of the others'."""
    runs: Sequence[SimResult] = [run for line in by_line.values() for run in line]
    wait = _ratio(by_line, OURS, FIRST_FIT, lambda run: run.longest_wait_s).median
    makespans = [_ratio(by_line, OURS, other, lambda run: run.makespan_s).median for other in OTHERS]
    whole, asked = sum(run.num_whole for run in runs), sum(run.num_chats for run in runs)
    return [
        Bar(name=f"{kind}: chats that ended in full", value=whole, bound=asked),
        Bar(name=f"{kind}: longest wait over first-fit's", value=wait, bound=WAIT_RATIO, at_most=True),
        Bar(name=f"{kind}: makespan over the best", value=max(makespans), bound=MAKESPAN_RATIO, at_most=True),
    ]


def starved_bars(by_line: Results) -> list[Bar]:
    """The limit does decide, and never for the worse: without it, or with a line that ignores it, ours is first-fit."""
    decided = _held_back(by_line)
    bars = [Bar(name=f"{STARVED}: seeds in which the limit of passes decided", value=len(decided), bound=1)]
    if decided:
        worst = max(ours.longest_wait_s / first_fit.longest_wait_s for ours, first_fit in decided)
        name = f"{STARVED}: longest wait over first-fit's where it decided, worst"
        bars.append(Bar(name=name, value=worst, bound=WAIT_RATIO, at_most=True))
    return bars


def _held_back(by_line: Results) -> list[tuple[SimResult, SimResult]]:
    """Our run and first-fit's of each seed in which they are not the same."""
    pairs = zip(by_line[OURS], by_line[FIRST_FIT], strict=True)
    return [(ours, first_fit) for ours, first_fit in pairs if ours != first_fit]
