"""A program: the gateway's deployment under a real Ray Serve, over an engine that is played.

`python -m tests.deploy.gateway.played_server MODEL_DIR RAY_DIR PORT` prints "ready" and ends with its standard input.
"""

import asyncio
import sys
from typing import Any

import ray
from ray import serve

from cluster.cluster_spec import ADMISSION_NAME, TokenAddress, namespace_of
from cluster.token_hub import TokenHub
from deploy.gateway.deployment import GatewaySpec, gateway_application
from scheduler.admission.errors import AdmissionRefused, QueueFull
from scheduler.messages import FinishReason, Submission, TokenEvent

CLUSTER = "played"
STEP_S = 0.01


class PlayedCluster:
    """Admission and engine in one: says "ab" a step in each choice, up to the request's bound or its cancel. Refuses
    priority -1.
    """

    def __init__(self) -> None:
        self._hub = TokenHub(lambda _: None)
        self._speaking: dict[str, asyncio.Task[None]] = {}
        self._num_cancelled = 0

    async def addresses(self) -> list[TokenAddress]:
        return [TokenAddress(group_id="group-0", endpoint=await self._hub.open(), token=self._hub.token)]

    async def close(self) -> None:
        self._hub.close()

    async def check_room(self) -> None:
        """There is always some."""

    async def submit(self, submission: Submission) -> AdmissionRefused | None:
        if submission.priority == -1:
            return QueueFull(8, 8, "requests", 5)
        self._speaking[submission.request_id] = asyncio.create_task(self._speak(submission))
        return None

    async def cancel(self, request_id: str) -> None:
        self._speaking[request_id].cancel()
        self._num_cancelled += 1

    async def status(self) -> dict[str, Any]:
        return {"requests": (), "groups": (), "num_cancelled": self._num_cancelled}

    async def _speak(self, submission: Submission) -> None:
        name, choices = submission.request_id, range(submission.n)
        words = [TokenEvent(request_id=name, choice=choice, tokens=tuple(b"ab")) for choice in choices]
        for _ in range(submission.stop.max_tokens // 2):
            self._hub.send({submission.gateway_id: words})
            await asyncio.sleep(STEP_S)
        ends = [TokenEvent(request_id=name, choice=choice, finish=FinishReason.LENGTH) for choice in choices]
        self._hub.send({submission.gateway_id: ends})


def main(model_dir: str, ray_dir: str, port: int) -> None:
    ray.init(
        address="local",
        num_cpus=1,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=80 << 20,
        _temp_dir=ray_dir,
    )
    options = {"name": ADMISSION_NAME, "namespace": namespace_of(CLUSTER), "num_cpus": 0, "max_concurrency": 100}
    actor = ray.remote(PlayedCluster).options(**options).remote()
    spec = GatewaySpec(
        cluster_id=CLUSTER, model_dir=model_dir, model_id="org/tiny", max_model_len=100_000, pool_tokens=100_000
    )
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(gateway_application(spec, graceful_shutdown_timeout_s=1), name=CLUSTER)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()
    ray.get(actor.close.remote())
    ray.kill(actor)
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
