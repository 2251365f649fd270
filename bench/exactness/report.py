"""The table of `parkade bench exactness`: what was done, and how many streams differ from their solo run."""

from collections.abc import Mapping

from bench.bars import Bar
from bench.exactness.outcome import DEEDS, Outcome
from bench.exactness.over_http import HttpPark
from bench.report import Report
from bench.spread import spread

CACHE_NOTE = "there is no prefix cache yet: schedules have no cache hits"


def make_report(
    settings: dict[str, object], outcomes: Mapping[tuple[str, int], Outcome], over_http: Mapping[int, HttpPark]
) -> Report:
    report = Report(title="exactness", settings=settings)
    for (part, num_ranks), outcome in outcomes.items():
        add_outcome(report, f"{part}, TP{num_ranks}", outcome)
    for num_ranks, park in over_http.items():
        add_http(report, f"http, TP{num_ranks}", park)
    report.facts["differing"] = [line for outcome in outcomes.values() for line in outcome.differing]
    report.facts["note"] = CACHE_NOTE
    return report


def add_outcome(report: Report, what: str, outcome: Outcome) -> None:
    report.add(what, "streams compared", "streams", spread([float(outcome.num_streams)]))
    report.add(what, "tokens compared", "tokens", spread([float(outcome.num_tokens)]))
    for deed in DEEDS:
        if count := outcome.deeds[deed]:
            report.add(what, deed, "times", spread([float(count)]))
    report.bars += [
        Bar(
            name=f"{what}: streams that differ from their solo run", value=len(outcome.differing), bound=0, at_most=True
        ),
        Bar(name=f"{what}: streams compared", value=outcome.num_streams, bound=1),
        Bar(name=f"{what}: parks by copy", value=outcome.deeds["parked by copy"], bound=1),
        Bar(name=f"{what}: parks by recompute", value=outcome.deeds["parked by recompute"], bound=1),
    ]
    if outcome.deeds["copies spoilt"]:
        found = outcome.deeds["wrong checksums found"]
        report.bars.append(Bar(name=f"{what}: wrong checksums found", value=found, bound=1))


def add_http(report: Report, what: str, park: HttpPark) -> None:
    parked = park.together[1]
    report.add(what, "streams compared", "streams", spread([float(len(park.together))]))
    report.add(what, "tokens of the parked one when it was parked", "tokens", spread([float(park.events_at_park)]))
    report.add(what, "parks of the parked one", "times", spread([float(parked.parks)]))
    report.facts[f"{what}: the parked one as the server told"] = park.row
    report.bars += [
        Bar(name=f"{what}: streams with the bytes of their solo run", value=park.num_same, bound=len(park.together)),
        Bar(name=f"{what}: parks of the parked one", value=parked.parks, bound=1),
    ]
