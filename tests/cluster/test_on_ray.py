"""The cluster on a real Ray: tokens over the token link, parks under pressure, a killed rank, clear refusals."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cluster.ray_session import NUM_REQUESTS, PARTS, run_session
from tests.cluster.ray_streams import NUM_TOKENS
from tests.tiny_models import TinyModel, write_tiny_model
from tests.workers.collective.groups import RankProcess

pytestmark = [pytest.mark.ray, pytest.mark.slow]

NOTHING_LEFT = {"ranks left": [], "CPUs free": 2.0, "actors left": []}


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, Any]]]:
    """What was seen, by the name of the part."""
    model_dir = write_tiny_model(tmp_path_factory.mktemp("models") / "llama", TinyModel())
    in_shared_memory = {path.name for path in Path("/dev/shm").glob("parkade-*")}
    driver = RankProcess(run_session, 0, str(model_dir), daemon=False)
    pid = driver.process.pid
    assert pid is not None
    descendants: set[psutil.Process] = set()
    try:
        seen = {}
        for part in PARTS:
            seen[part.__name__] = driver.result(300)
            descendants |= set(psutil.Process(pid).children(recursive=True))
        yield seen
    finally:
        driver.end()
        _, alive = psutil.wait_procs(descendants, timeout=20)
        for process in alive:
            process.kill()
    new = {path.name for path in Path("/dev/shm").glob("parkade-*")} - in_shared_memory
    assert {name for name in new if not is_anothers(name, pid)} == set()


def is_anothers(name: str, pid: int) -> bool:
    """Others may use this machine meanwhile: arenas tell the start they are of, the rest a process that lives."""
    if name.startswith(("parkade-arena-", "parkade-budget-")):
        return str(pid) not in name
    return any(part.isdecimal() and psutil.pid_exists(int(part)) for part in name.split("-"))


def test_all_streams_end_whole_and_as_they_do_alone_though_the_pool_holds_only_two(facts: Any) -> None:
    seen = facts["serve_under_pressure"]
    assert seen["together"] == seen["alone"]
    assert {len(tokens) for tokens in seen["together"].values()} == {NUM_TOKENS}
    assert seen["finishes"] == ["length"] * NUM_REQUESTS
    assert seen["parks"] >= 1


def test_a_prompt_that_never_fits_is_refused_with_its_own_error_across_ray(facts: Any) -> None:
    assert facts["serve_under_pressure"]["refusal"] == "NeverFits"


def test_an_order_parks_and_an_order_brings_back_token_for_token(facts: Any) -> None:
    seen = facts["serve_under_pressure"]
    assert seen["parked"] == ("parked", True, 0, True)
    assert seen["promoted"] == (3, True)
    assert seen["unparked"] == ("resident", False)
    assert seen["ordered tokens"] == seen["alone"][0]


def test_orders_refused_come_across_ray_as_what_they_are(facts: Any) -> None:
    unknown = "UnknownRequest: no live request has the id ordered-0: it has ended, or never was"
    assert facts["serve_under_pressure"]["refusals"] == [unknown, unknown]


def test_a_watch_across_ray_follows_a_request_to_its_end(facts: Any) -> None:
    watched = facts["serve_under_pressure"]["watched"]
    assert sorted(watched) == sorted(
        ["submitted", "admitted", "held", "parked", "priority", "unheld", "restored", "finished"]
    )
    assert watched[0] == "submitted"
    assert watched[-1] == "finished"


def test_rays_metrics_endpoint_shows_what_was_done(facts: Any) -> None:
    series = facts["serve_under_pressure"]["metrics"]
    told = 2 * NUM_REQUESTS + 1
    assert series["ray_parkade_finished_requests_total reason=length tier=0"] == told - 1
    assert series["ray_parkade_finished_requests_total reason=length tier=3"] == 1
    assert series["ray_parkade_parks_total mode=copy reason=explicit tier=0"] == 1
    assert series["ray_parkade_queue_wait_seconds_count tier=0"] == told
    assert series["ray_parkade_generated_tokens_total group=group-0"] == told * NUM_TOKENS
    assert series["ray_parkade_copies_total group=group-0 outcome=done"] == 2 * sum(
        value for name, value in series.items() if name.startswith("ray_parkade_parks_total")
    )
    assert series["ray_parkade_pages group=group-0 state=free"] == 16
    assert series["ray_parkade_arena_used_bytes group=group-0"] == 0
    assert series["ray_parkade_step_seconds_count group=group-0"] >= NUM_REQUESTS * NUM_TOKENS


def test_a_ping_goes_through_the_step_loop_and_progress_is_told(facts: Any) -> None:
    seen = facts["serve_under_pressure"]
    assert seen["ping"] == {}
    assert seen["second"].startswith("another server runs on this Ray; stop that first")
    assert seen["failure"] is None
    assert seen["progress"][-1] == "2 of 2 ranks ready" or seen["progress"]


def test_a_killed_rank_ends_its_streams_with_an_error_that_names_it(facts: Any) -> None:
    seen = facts["lose_a_rank"]
    assert seen["num_ranks"] == 2
    for is_error, text in seen["finishes"]:
        assert is_error
        assert "rank " in text
    assert "rank " in seen["failure"]


def test_what_cannot_start_says_why_in_one_line(facts: Any) -> None:
    seen = facts["refuse_to_start"]
    assert seen["no model"].startswith("ClusterFailed: rank 0 failed while it loaded: BrokenModel:")
    assert seen["no room"] == "CannotPlace: 3 ranks on one host need 3 CPU, the largest node has 2"


@pytest.mark.parametrize("part", [part.__name__ for part in PARTS])
def test_a_stopped_cluster_leaves_no_actor_no_rank_and_no_placement(facts: Any, part: str) -> None:
    seen = facts[part]
    assert {name: seen[name] for name in NOTHING_LEFT} == NOTHING_LEFT
