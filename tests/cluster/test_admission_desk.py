"""The desk's own book: which gateway a request's tokens go to, and that it forgets with the request."""

import logging
from collections.abc import Sequence

import pytest

from cluster.admission_desk import AdmissionDesk, EnginePort
from cluster.cluster_spec import TokenAddress
from scheduler.admission import AdmissionPolicy, GroupCapacity
from scheduler.messages import Admit, Cancel, Command, Deferred, Finished, FinishReason, GroupLoad, Submission
from scheduler.sampling import SamplingParams, StopRules


def load(last_command: int) -> GroupLoad:
    return GroupLoad(
        group_id="g", last_command=last_command, pages_total=8, pages_free=8, arena_total=8, arena_free=8, residents=()
    )


def desk_with_engine() -> tuple[AdmissionDesk, list[Command]]:
    sent: list[Command] = []

    async def send(commands: Sequence[Command]) -> None:
        sent.extend(commands)

    async def probe() -> None:
        return None

    desk = AdmissionDesk(AdmissionPolicy(), now=lambda: 0.0)
    capacity = GroupCapacity(group_id="g", num_pages=8, page_size=16, seats=4, max_model_len=128)
    desk.register(capacity, EnginePort(TokenAddress(group_id="g", endpoint="unix:/x", token="t"), send, probe))
    return desk, sent


def submit(desk: AdmissionDesk, request_id: str) -> None:
    submission = Submission(
        request_id=request_id,
        gateway_id="gateway",
        prompt_tokens=(1, 2, 3),
        sampling=SamplingParams(),
        stop=StopRules(max_tokens=4),
    )
    assert desk.submit(submission) is None


def cancelled_with_gateway(desk: AdmissionDesk, caplog: pytest.LogCaptureFixture) -> str:
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="cluster.admission_desk"):
        desk.lose_gateway("gateway")
    return caplog.messages[0]


async def test_a_request_that_ends_is_forgotten_whichever_word_ends_it(caplog: pytest.LogCaptureFixture) -> None:
    desk, _ = desk_with_engine()
    submit(desk, "finished")
    submit(desk, "deferred")
    desk.take_words("g", [Finished(load=load(2), request_id="finished", reason=FinishReason.STOP)])
    desk.cancel("deferred")
    desk.take_words("g", [Deferred(load=load(3), request_id="deferred")])
    assert cancelled_with_gateway(desk, caplog) == "gateway gateway is gone: 0 requests are cancelled"


async def test_a_deferred_request_that_still_waits_goes_with_its_gateway(caplog: pytest.LogCaptureFixture) -> None:
    desk, _ = desk_with_engine()
    submit(desk, "waiting")
    desk.take_words("g", [Deferred(load=load(1), request_id="waiting")])
    assert cancelled_with_gateway(desk, caplog) == "gateway gateway is gone: 1 requests are cancelled"
    assert cancelled_with_gateway(desk, caplog) == "gateway gateway is gone: 0 requests are cancelled"


async def test_commands_reach_the_engine_in_their_order() -> None:
    desk, sent = desk_with_engine()
    submit(desk, "one")
    desk.cancel("one")
    await desk._lines["g"].flush()
    assert [type(command) for command in sent] == [Admit, Cancel]
    assert [command.number for command in sent] == [1, 2]
