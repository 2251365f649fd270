"""Commands for a running server, against the real admin interface over a played admission."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from deploy.cli import app
from scheduler.admission import RequestRow
from tests.deploy.admin.played_admission import PlayedAdmission, row

REQUEST_KEYS = {
    *("id", "object", "state", "held", "deadline_s", "then", "cancelling", "priority", "effective_priority", "n"),
    *("prompt_tokens", "tokens", "seats", "pages", "arena_pages", "parks", "recomputes", "passes"),
    *("waited_seconds", "parked_seconds", "age_seconds", "slot", "group", "owner"),
}
SOON_S = 60.0


@pytest.fixture
def parkade(variables: Mapping[str, str]) -> Callable[..., Any]:
    """One command, beside the server's event loop."""

    async def run(*arguments: str, **more: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, app, list(arguments), env={**variables, **more})

    return run


def lines(result: Result) -> list[str]:
    assert (result.exit_code, result.stderr) == (0, "")
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


def loaded(result: Result) -> Any:
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)


async def test_ps_lists_requests_in_order_of_arrival(parkade: Any) -> None:
    assert lines(await parkade("ps")) == [
        "SLOT ID STATE TIER TOKENS PAGES RAM PARKS RECOMP WAITED AGE",
        "0 aa11 resident 0 100 7 0 0 0 0.2 s 3.5 s",
        "1 ab22 queued 5 → 6 100 0 0 0 0 0.2 s 3.5 s",
        "2 job-7 parked 0 100 0 9 2 0 1 min 15 s 3.5 s",
    ]


async def test_ps_as_json_has_the_shape_of_http_and_the_owner(parkade: Any) -> None:
    rows = loaded(await parkade("ps", "--json"))
    assert [(one["id"], one["state"], one["group"], one["owner"]) for one in rows] == [
        ("aa11", "resident", "group-0", ""),
        ("ab22", "queued", None, ""),
        ("job-7", "parked", "group-0", "team"),
    ]
    assert all(set(one) == REQUEST_KEYS for one in rows)


async def test_long_ids_are_cut_where_they_differ_and_shown_whole_on_demand(
    parkade: Any, admission: PlayedAdmission
) -> None:
    alike = "0123456789abcdef-01"
    admission.rows = {name: row(name) for name in (f"{alike}-one", f"{alike}-two")}
    assert [line.split()[1] for line in lines(await parkade("ps"))[1:]] == [f"{alike}-o", f"{alike}-t"]
    assert [line.split()[1] for line in lines(await parkade("ps", "--no-trunc"))[1:]] == list(admission.rows)


async def test_a_park_by_a_shortened_id_says_what_became_of_it(parkade: Any, admission: PlayedAdmission) -> None:
    assert lines(await parkade("park", "aa", "--deadline", "60", "--then", "cancel", "--wait", "2")) == [
        "aa11: parked, held 1 min 0 s, then cancel; priority 0; 100 tokens; 0 pages in the pool, 7 in host RAM"
    ]
    assert admission.wait_s == 2
    told = loaded(await parkade("park", "aa11", "--json"))
    assert (told["held"], told["deadline_s"], told["then"], set(told)) == (True, None, "unpark", REQUEST_KEYS)


async def test_unpark_priority_and_cancel_answer_with_the_request(parkade: Any) -> None:
    await parkade("park", "job")
    assert loaded(await parkade("unpark", "job", "--json"))["held"] is False
    assert lines(await parkade("priority", "job", "-5"))[0].startswith("job-7: parked; priority -5 → -3; ")
    assert loaded(await parkade("cancel", "job-7", "--json"))["cancelling"] is True


async def test_an_id_that_is_whole_wins_over_longer_ones(parkade: Any, admission: PlayedAdmission) -> None:
    admission.rows = {name: row(name) for name in ("job", "job-7")}
    assert loaded(await parkade("cancel", "job", "--json"))["id"] == "job"


async def test_status_shows_pool_host_ram_and_seats(parkade: Any) -> None:
    shown = lines(await parkade("status"))
    assert shown[0].startswith("group-0 pool ")
    assert shown[0].endswith("14 of 64 pages")
    assert [line.split()[-4:] for line in shown[1:2]] == [["5", "of", "85", "pages"]]
    assert shown[2].endswith("2 of 8")
    assert shown[3] == "requests: 1 parked, 1 queued, 1 resident; waiting: 2 with 300 prompt tokens"


async def test_status_as_json(parkade: Any) -> None:
    told = loaded(await parkade("status", "--json"))
    assert set(told) == {
        *("draining", "exhausted", "by_state", "tiers", "queued_requests", "queued_tokens", "groups"),
    }
    assert told["tiers"] == [{"effective_priority": 0, "by_state": {"parked": 1, "queued": 1, "resident": 1}}]
    assert set(told["groups"][0]) == {
        *("id", "pages_total", "pages_free", "pages_unclaimed", "arena_total", "arena_free", "seats", "seats_free"),
        *("parked", "shortfall", "survivor_id", "exhausted"),
    }


async def test_drain_and_undrain(parkade: Any, admission: PlayedAdmission) -> None:
    assert lines(await parkade("drain")) == ["Draining; 3 requests live."]
    assert admission.draining
    assert loaded(await parkade("undrain", "--json")) == {"draining": False}
    admission.rows.clear()
    assert loaded(await parkade("drain", "--wait", "--json")) == {"draining": True, "living": 0}


async def test_watch_prints_one_object_a_line_and_ends_with_its_request(
    parkade: Any, admission: PlayedAdmission
) -> None:
    for number in range(4):
        admission.ring.add("pressure", "", "group-0", shortfall=number)
    admission.ring.add("finished", "job-7", "group-0", reason="stop", age_s=1.5)  # the ring keeps four: one is lost
    del admission.rows["job-7"]
    result = await parkade("watch", "job-7", "--from", "0", "--json")
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert [event["kind"] for event in told] == ["lost", "finished"]
    assert told[0]["facts"] == {"events": 1}
    assert told[1] == {
        "number": 4,
        "unix_s": 1_700_000_000.125,
        "kind": "finished",
        "request_id": "job-7",
        "group": "group-0",
        "facts": {"age_s": 1.5, "reason": "stop"},
    }


async def test_a_watch_by_a_shortened_id_ends_with_its_request(parkade: Any, admission: PlayedAdmission) -> None:
    watching = asyncio.create_task(parkade("watch", "job"))
    async with asyncio.timeout(SOON_S):
        while not admission.watching:  # noqa: ASYNC110 - the command has no event to wait for
            await asyncio.sleep(0.01)
    del admission.rows["job-7"]
    admission.ring.add("finished", "job-7", "group-0", reason="stop")
    (line,) = lines(await watching)
    assert line.endswith("finished job-7 group-0 reason=stop")


async def test_a_watch_of_one_that_has_ended_says_so(parkade: Any) -> None:
    result = await parkade("watch", "gone", "--from", "0")
    assert result.exit_code == 1
    assert result.stderr == "parkade: no live request has the id gone: it has ended, or never was\n"


async def test_a_drain_that_waits_tells_of_the_held_who_do_not_end_by_themselves(
    parkade: Any, admission: PlayedAdmission, monkeypatch: pytest.MonkeyPatch
) -> None:
    admission.rows["job-7"] = row("job-7", state="parked", held=True)
    looks = 0

    async def requests(_: None) -> list[RequestRow]:
        nonlocal looks
        looks += 1
        if looks > 3:
            admission.rows.clear()
        return list(admission.rows.values())

    monkeypatch.setattr(admission, "requests", requests)
    result = await parkade("drain", "--wait")
    assert (result.exit_code, result.stdout) == (0, "Draining; 0 requests live.\n")
    assert result.stderr == (
        "1 of 3 living requests are held: each ends only after `parkade unpark`, `parkade cancel` or its deadline\n"
    )


async def test_a_drain_that_waits_ends_when_somebody_ends_the_draining(
    parkade: Any, admission: PlayedAdmission, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def not_for_long() -> None:
        """Ended by somebody else at once."""

    monkeypatch.setattr(admission, "drain", not_for_long)
    result = await parkade("drain", "--wait")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "parkade: somebody has ended the draining (`parkade undrain`); 3 requests live\n"


@pytest.mark.parametrize(
    "arguments",
    [["priority", "job", "2147483648"], ["priority", "job", "-2147483649"], ["watch", "--from", str(1 << 63)]],
)
async def test_a_number_out_of_its_range_is_told_with_the_range(parkade: Any, arguments: list[str]) -> None:
    result = await parkade(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Input should be " in result.stderr


async def test_watch_in_words(parkade: Any, admission: PlayedAdmission) -> None:
    admission.ring.add("park_failed", "job-7", "group-0", reason="no room", tokens=5)
    admission.ring.add("finished", "job-7", "group-0", reason="stop", error="")
    del admission.rows["job-7"]
    shown = lines(await parkade("watch", "job-7", "--from", "0"))
    assert [line.partition(" ")[2] for line in shown] == [
        'park_failed job-7 group-0 reason="no room" tokens=5',
        "finished job-7 group-0 reason=stop",
    ]
    assert all(line.partition(" ")[0].endswith(":20.125") for line in shown)


async def test_top_prints_one_board(parkade: Any) -> None:
    shown = lines(await parkade("top", "--once"))
    assert shown[0].endswith("14 of 64 pages")
    assert shown[-1].startswith("2 job-7 parked")
    told = loaded(await parkade("top", "--once", "--json"))
    assert (set(told), len(told["requests"])) == ({"status", "requests"}, 3)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["cancel", "a"], "2 ids begin with 'a': aa11, ab22; write more of the one you mean"),
        (["park", "zz"], "no living request's id begins with 'zz'; `parkade ps` lists them"),
        (["unpark", ""], "no living request's id begins with ''; `parkade ps` lists them"),
        (["park", "job", "--then", "cancel"], "--then says what happens at the deadline: give --deadline SECONDS"),
        (["park", "job", "--deadline", "-1"], "deadline_s must be more than 0 and at most 1000000000 seconds"),
        (["park", "job", "--wait", "nan"], "wait_s must be 0 to 60 seconds (given: nan)"),
        (["park", "job", "--wait", "inf"], "wait_s must be 0 to 60 seconds (given: inf)"),
        (["park", "job", "--wait", "-20"], "wait_s must be 0 to 60 seconds (given: -20.0)"),
        (["unpark", "job", "--wait", "99"], "wait_s must be 0 to 60 seconds (given: 99.0)"),
        (["ps", "--admin", "nowhere"], "'nowhere' is no HOST:PORT, such as 127.0.0.1:8001"),
        (["ps", "--token-file", "/gone"], "cannot read the admin token file /gone: No such file"),
        (["ps", "--tls-ca", "/gone"], "cannot read the certificates in /gone: No such file"),
        (["ps", "--admin", "127.0.0.1:1"], "no server that was started here listens at 127.0.0.1:1: name the file"),
    ],
)
async def test_a_mistake_is_one_line_and_exit_code_1(parkade: Any, arguments: list[str], line: str) -> None:
    result = await parkade(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"parkade: {line}")
    assert result.stderr.count("\n") == 1


async def test_an_order_that_is_refused_says_the_state(parkade: Any, admission: PlayedAdmission) -> None:
    admission.rows["job-7"] = row("job-7", cancelling=True)
    result = await parkade("park", "job")
    assert (result.exit_code, result.stderr) == (1, "parkade: request job-7 is ending: it can be held no more\n")


async def test_a_token_of_another_server_is_told(parkade: Any, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("the-token-of-another-server")
    result = await parkade("status", "--token-file", str(other))
    assert result.exit_code == 1
    assert "does not take the token in" in result.stderr
    assert "the-token-of-another-server" not in result.stderr


async def test_a_server_that_is_gone_is_told(parkade: Any, tmp_path: Path) -> None:
    result = await parkade("ps", PARKADE_ADMIN="127.0.0.1:1", PARKADE_ADMIN_TOKEN_FILE=str(tmp_path / "token"))
    assert result.exit_code == 1
    assert result.stderr.startswith("parkade: the server at 127.0.0.1:1 cannot be reached: ")


async def test_without_a_server_the_way_to_one_is_shown(parkade: Any, tmp_path: Path) -> None:
    result = await parkade("ps", XDG_RUNTIME_DIR=str(tmp_path / "empty"))
    assert result.exit_code == 1
    assert (
        "start one with `parkade serve MODEL`, or name one by --admin HOST:PORT and --token-file FILE" in result.stderr
    )


def test_help_imports_no_grpc() -> None:
    code = "import sys, deploy.cli; print([name for name in ('grpc', 'google.protobuf') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=SOON_S, check=True)
    assert done.stdout == "[]\n"
