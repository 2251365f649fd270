"""llama.cpp's view of living requests: slots by number, parked and unparked."""

import httpx
import pytest

from scheduler.admission import HoldTerms, WrongState
from tests.deploy.gateway.fakes import HandPlayedBackend, request_row


async def test_slots_are_requests_by_number_in_llama_cpps_words(
    backend: HandPlayedBackend, client: httpx.AsyncClient
) -> None:
    backend.rows = {
        "b": request_row("b", slot=2, state="parked", held=True, parks=4, recomputes=1, arena_pages=3, priority=5),
        "a": request_row("a", slot=0, state="restoring"),
    }
    response = await client.get("/slots")
    assert response.json() == [
        {
            "id": 0,
            "request_id": "a",
            "n_ctx": 200,
            "n_tokens": 12,
            "is_processing": True,
            "is_preempted": False,
            "is_transferring": True,
            "n_preempt": 0,
            "n_recompute": 0,
            "priority": 0,
            "preempt_pages": 0,
            "preempt_manual": False,
        },
        {
            "id": 2,
            "request_id": "b",
            "n_ctx": 200,
            "n_tokens": 12,
            "is_processing": True,
            "is_preempted": True,
            "is_transferring": False,
            "n_preempt": 4,
            "n_recompute": 1,
            "priority": 5,
            "preempt_pages": 3,
            "preempt_manual": True,
        },
    ]


@pytest.mark.parametrize(("action", "order"), [("park", ("park", "b", HoldTerms(), 5.0)), ("unpark", ("unpark", "b"))])
async def test_a_slot_is_parked_and_unparked(
    action: str, order: tuple[object, ...], backend: HandPlayedBackend, client: httpx.AsyncClient
) -> None:
    backend.rows["b"] = request_row("b", slot=3)
    response = await client.post(f"/slots/3?action={action}")
    assert response.status_code == 200
    assert {"id", "is_preempted", "preempt_pages", "preempt_manual"} <= set(response.json())
    assert response.json()["id"] == 3
    assert backend.orders == [order]


@pytest.mark.parametrize(
    ("path", "status", "param", "code"),
    [
        ("/slots/7?action=park", 404, None, "slot_not_found"),
        ("/slots/x?action=park", 400, "slot", None),
        ("/slots/-1?action=park", 400, "slot", None),
        ("/slots/²?action=park", 400, "slot", None),
        ("/slots/9999999999?action=park", 400, "slot", None),
        ("/slots/0", 400, "action", None),
        ("/slots/0?action=", 400, "action", None),
        ("/slots/0?action=pause", 400, "action", None),
        ("/slots/0?action=save", 501, "action", "not_supported"),
        ("/slots/0?action=restore", 501, "action", "not_supported"),
        ("/slots/0?action=erase", 501, "action", "not_supported"),
    ],
)
async def test_what_slots_do_not_do(  # noqa: PLR0917
    path: str, status: int, param: str | None, code: str | None, backend: HandPlayedBackend, client: httpx.AsyncClient
) -> None:
    response = await client.post(path)
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (status, param, code)
    assert backend.orders == []
    if status in (400, 501) and param == "action":
        assert "park" in error["message"]


async def test_a_slot_in_the_wrong_state_is_409(backend: HandPlayedBackend, client: httpx.AsyncClient) -> None:
    backend.rows = {"a": request_row("a")}
    backend.order_refusal = WrongState("a", "resident", "parking is off")
    response = await client.post("/slots/0?action=park")
    assert (response.status_code, response.json()["error"]["state"]) == (409, "resident")
