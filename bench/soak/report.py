"""The table of `parkade bench soak`, and its bars."""

from collections import Counter
from dataclasses import dataclass

from bench.bars import Bar
from bench.report import Report
from bench.soak.errand import Fate, Order
from bench.soak.gauges import Gauges, metric_problems
from bench.soak.visitor import Visit
from bench.spread import spread

# Sockets and threads that Ray opens by itself now and then.
FD_SLACK, THREAD_SLACK = 16, 16
# Caches and allocators fill up after the first requests too: 1.05 was seen after 2,000. More than this is a leak.
RESIDENT_RATIO = 1.25
# Those that tell their tasks: a gateway, admission, an engine.
MIN_PROCESSES = 3
MAX_TOLD = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakResult:
    """`rest_s`: how long after the last answer the gauges showed rest."""

    visits: list[Visit]
    before: Gauges
    after: Gauges
    wall_s: float
    rest_s: float
    contradictions: list[str]


def make_report(settings: dict[str, object], result: SoakResult) -> Report:
    report = Report(title="soak", settings=settings)
    visits = result.visits
    fates = Counter(visit.errand.fate for visit in visits)
    for fate, count in sorted(fates.items()):
        report.add("requests", fate, "requests", spread([float(count)]))
    for name, number in (
        ("families", sum(visit.errand.n > 1 for visit in visits)),
        ("whole", sum(visit.is_whole for visit in visits)),
        ("parks told in usage", _used(visits, "parks")),
        ("recomputes told in usage", _used(visits, "recomputes")),
        ("answers 429 or 503", sum(visit.refusals for visit in visits)),
        ("completion tokens told", _used(visits, "completion_tokens")),
    ):
        report.add("soak", name, "count", spread([float(number)]))
    report.add("soak", "wall time", "s", spread([result.wall_s]))
    report.add("soak", "until all gauges rest", "s", spread([result.rest_s]))
    report.facts["answers to orders"] = {
        f"{order}, {code}": count for (order, code), count in sorted(_answers(visits).items())
    }
    report.facts["faults"] = [f"{v.errand.request_id} ({v.errand.fate}): {v.fault}" for v in visits if v.fault][
        :MAX_TOLD
    ]
    report.facts["contradictions"] = result.contradictions[:MAX_TOLD]
    report.facts["books"] = list(result.after.books)
    add_gauges(report, result.before, result.after)
    report.bars += soak_bars(result)
    return report


def add_gauges(report: Report, before: Gauges, after: Gauges) -> None:
    for when, gauges in (("before", before), ("after", after)):
        report.add("file descriptors", when, "count", spread([float(gauges.num_fds)]))
        report.add("threads", when, "count", spread([float(gauges.num_threads)]))
        report.add("resident, all processes", when, "MiB", spread([gauges.resident_mib]))
        report.add("arena memory in /dev/shm", when, "KiB", spread([gauges.arena_bytes / 1024]))
        for process, count in sorted(gauges.tasks.items()):
            report.add(f"asyncio tasks, {process}", when, "count", spread([count]))
    report.facts["gauges of the metrics page that are not 0"] = metric_problems(after.metrics)


def soak_bars(result: SoakResult) -> list[Bar]:
    return [
        *answer_bars(result.visits, result.contradictions),
        *order_bars(result),
        *rest_bars(result.after),
        *growth_bars(result.before, result.after),
        *task_bars(result.before, result.after),
    ]


def answer_bars(visits: list[Visit], contradicting: list[str]) -> list[Bar]:
    return [
        Bar(name="requests that ended as they must not", value=_faults(visits), bound=0, at_most=True),
        Bar(name="texts that contradict another", value=len(contradicting), bound=0, at_most=True),
        Bar(name="parks", value=_used(visits, "parks"), bound=1),
    ]


def order_bars(result: SoakResult) -> list[Bar]:
    """Orders may come too late, but not all of a kind; and what they did is seen elsewhere than in their answers."""
    done = _answers(result.visits)
    bars = [Bar(name=f"orders answered with 200: {order}", value=done[order, 200], bound=1) for order in Order]
    for fate in (Fate.CANCEL, Fate.PARK_THEN_CANCEL):
        ended = sum(visit.is_cancelled for visit in result.visits if visit.errand.fate is fate)
        bars.append(Bar(name=f"requests that ended as cancelled: {fate}", value=ended, bound=1))
    left = sum(visit.left for visit in result.visits)
    explicit = result.after.explicit_parks - result.before.explicit_parks
    return [
        *bars,
        Bar(name="clients that hung up", value=left, bound=1),
        Bar(name="explicit parks on the metrics page", value=explicit, bound=1),
    ]


def rest_bars(after: Gauges) -> list[Bar]:
    return [
        Bar(name="gauges that are not at rest", value=len(after.books), bound=0, at_most=True),
        Bar(name="gauges of the metrics page", value=len(after.metrics), bound=1),
        Bar(name="of these, not at rest", value=len(metric_problems(after.metrics)), bound=0, at_most=True),
    ]


def growth_bars(before: Gauges, after: Gauges) -> list[Bar]:
    fds, threads = after.num_fds - before.num_fds, after.num_threads - before.num_threads
    resident = after.resident_mib / before.resident_mib
    return [
        *arena_bars(before, after),
        Bar(name="file descriptors more than before", value=fds, bound=FD_SLACK, at_most=True),
        Bar(name="threads more than before", value=threads, bound=THREAD_SLACK, at_most=True),
        Bar(name="resident memory over that before", value=resident, bound=RESIDENT_RATIO, at_most=True),
    ]


def arena_bars(before: Gauges, after: Gauges) -> list[Bar]:
    grown = after.arena_bytes - before.arena_bytes
    return [
        Bar(name="growth of arena memory in /dev/shm, bytes", value=grown, bound=0, at_most=True),
        Bar(name="arena segments more than before", value=after.num_arenas - before.num_arenas, bound=0, at_most=True),
    ]


def task_bars(before: Gauges, after: Gauges) -> list[Bar]:
    told = before.tasks.keys() & after.tasks.keys()
    bound = max(MIN_PROCESSES, len(before.tasks))
    bars = [Bar(name="processes that tell their tasks", value=len(told), bound=bound)]
    for process in sorted(told):
        more = after.tasks[process] - before.tasks[process]
        bars.append(Bar(name=f"asyncio tasks more than before, {process}", value=more, bound=0, at_most=True))
    return bars


def _answers(visits: list[Visit]) -> Counter[tuple[Order, int]]:
    return Counter(answer for visit in visits for answer in visit.answers)


def _used(visits: list[Visit], name: str) -> int:
    return sum(int(visit.usage.get(name, 0)) for visit in visits)


def _faults(visits: list[Visit]) -> int:
    return sum(visit.fault is not None for visit in visits)
