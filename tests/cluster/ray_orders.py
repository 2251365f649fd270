"""Orders from outside over Ray: what `AdmissionClient` carries there and back, and the metrics that Ray then shows."""

import asyncio
import re
import time
import urllib.request
from typing import Any

from scheduler.admission import HoldTerms, OrderRefused
from tests.cluster.ray_streams import NUM_TOKENS, submission, until_finished

_METRICS_TIMEOUT_S = 40.0
_FINISHED = "ray_parkade_finished_requests_total"
_GENERATED = "ray_parkade_generated_tokens_total group=group-0"


async def give_orders(cluster_id: str) -> dict[str, Any]:
    """One request parked by an order, looked at, promoted, and unparked while a watch follows."""
    from cluster.admission_client import AdmissionClient
    from cluster.token_link import TokenClient

    admission = AdmissionClient(cluster_id)
    (address,) = await admission.addresses()
    client = await TokenClient.connect(address, "gateway")
    from_now = (await admission.watch(-1, 0.0)).next
    await admission.check_room()
    await admission.submit(submission("ordered", 0, owner="k1"))
    parked = await admission.park("ordered-0", "k1", HoldTerms(), 60.0)
    stranger = await _refusal(admission.park("ordered-0", "k2", HoldTerms()))
    promoted = await admission.set_priority("ordered-0", "k1", 3)
    unparked = await admission.unpark("ordered-0", "k1", 60.0)
    tokens, _ = await until_finished(client, 1)
    watched = await _watch_to_the_end(admission, from_now)
    gone = await _refusal(admission.request("ordered-0", None))
    await client.close()
    return {
        "parked": (parked.state, parked.held, parked.pages, parked.arena_pages > 0),
        "promoted": (promoted.priority, promoted.held),
        "unparked": (unparked.state, unparked.held),
        "refusals": [stranger, gone],
        "ordered tokens": tokens["ordered-0"],
        "watched": watched,
    }


async def _refusal(call: Any) -> str:
    try:
        await call
    except OrderRefused as refusal:
        return f"{type(refusal).__name__}: {refusal}"
    return "no refusal"


async def _watch_to_the_end(admission: Any, number: int) -> list[str]:
    kinds: list[str] = []
    async with asyncio.timeout(60):
        while "finished" not in kinds:
            batch = await admission.watch(number, 20.0)
            kinds += [event.kind for event in batch.events if event.request_id]
            number = batch.next
    return kinds


def metrics_once_told(num_requests: int) -> dict[str, float]:
    """Every series of ours at Ray's endpoint, without Ray's own labels, once it shows so many requests as ended.

    Polled: each process tells Ray its metrics now and then, so that they show seconds late.
    """
    import ray

    (node,) = ray.nodes()
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    deadline = time.monotonic() + _METRICS_TIMEOUT_S
    series: dict[str, float] = {}
    while not _is_told(series, num_requests) and time.monotonic() < deadline:
        time.sleep(0.5)
        with urllib.request.urlopen(url, timeout=10) as answer:
            series = _series(answer.read().decode())
    return series


def _is_told(series: dict[str, float], num_requests: int) -> bool:
    finished = sum(value for name, value in series.items() if name.startswith(_FINISHED))
    return finished == num_requests and series.get(_GENERATED) == num_requests * NUM_TOKENS


def _series(page: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, labels, value in re.findall(r"^(ray_parkade_\w+)\{(.*)\} (\S+)$", page, re.MULTILINE):
        own = re.findall(r'(group|state|tier|reason|mode|direction|cause|code|outcome)="([^"]*)"', labels)
        if not name.endswith("_bucket"):
            found[" ".join([name, *(f"{label}={text}" for label, text in sorted(own))])] = float(value)
    return found
