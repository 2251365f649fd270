"""`parkade bench order`: how long the unluckiest chat stands still, by how strictly the line of the parked is kept.

Our line lets one that does not fit be passed eight times; first-fit lets it be passed for ever; a strict line never.
Bare first-fit, told beside them, does without what else keeps waits short: neither parks nor age lift anybody.
Simulated: admission and engine are the real ones, ranks take time by a cost model. The same chats for all lines.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console

from bench.bars import Bar
from bench.order.chats import KINDS, NUM_CHATS, draw_chats
from bench.order.model_ranks import CostModel
from bench.order.simulate import SimResult, simulate
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
    kinds: tuple[str, ...] = tuple(KINDS)
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
    chats = draw_chats(kind, seed, bench.pool_tokens)
    return {line: simulate(chats, bench.pool_tokens, policy, bench.costs) for line, policy in LINES.items()}


def make_report(bench: OrderBench, results: Mapping[str, Results]) -> Report:
    settings: dict[str, object] = {
        "chats": NUM_CHATS,
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
        pairs = zip(by_line[OURS], by_line[FIRST_FIT], strict=True)
        report.facts[f"{kind}: seeds in which our line ever held anybody back"] = sum(a != b for a, b in pairs)
        report.bars += order_bars(kind, by_line)
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
    whole = sum(run.num_whole for run in runs)
    return [
        Bar(name=f"{kind}: chats that ended in full", value=whole, bound=NUM_CHATS * len(runs)),
        Bar(name=f"{kind}: longest wait over first-fit's", value=wait, bound=WAIT_RATIO, at_most=True),
        Bar(name=f"{kind}: makespan over the best", value=max(makespans), bound=MAKESPAN_RATIO, at_most=True),
    ]
