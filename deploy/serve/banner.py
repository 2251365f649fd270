"""What a server says of itself while it loads and when it is ready."""

import json

from deploy.config import format_bytes
from deploy.serve.plan import ServerPlan, Sizes
from deploy.serve.reports import Ready

_ANY_HOST = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def loading_line(plan: ServerPlan, sizes: Sizes) -> str:
    ranks = _count(plan.tensor_parallel_size, "rank")
    return f"Loading {plan.model_id} on {ranks}: {format_bytes(sizes.weight_bytes)} of {plan.dtype} weights in memory"


def ready_lines(plan: ServerPlan, sizes: Sizes, ready: Ready) -> list[str]:
    """The ready banner, a line each."""
    url = url_of(plan)
    pool = plan.num_pages * sizes.page_bytes
    per_request = -(-plan.max_model_len // plan.page_size)
    full_length = plan.num_pages / per_request
    return [
        f"Ready after {ready.seconds:.1f} s: {url}",
        f"  KV pool   {plan.pool_tokens:,} tokens in {plan.num_pages:,} pages of {plan.page_size}, "
        f"{format_bytes(pool)} of {plan.kv_dtype}; {full_length:.2f} requests of {plan.max_model_len:,} tokens at once",
        f"  parking   {_parking(plan, sizes)}",
        f"  shards    {_shards(sizes)}; sums over {plan.collective}, {_count(plan.num_threads, 'thread')} a rank",
        f"  admin     {ready.admin}{' with TLS' if plan.admin.tls_cert else ''}, token in {plan.admin.token_file}",
        f"  metrics   {ready.metrics_url or 'none: this Ray exports none'}",
        "Try it:",
        f"  {curl_line(plan)}",
    ]


def _parking(plan: ServerPlan, sizes: Sizes) -> str:
    if not plan.park:
        return "off: a request that overflows the pool fails"
    if plan.arena_pages == 0:
        return "without host RAM: what is parked is dropped and computed again"
    beyond = "what goes beyond is computed again" if plan.recompute else "new requests get 429 when that is full"
    parked_tokens = plan.arena_pages * plan.page_size
    return f"{format_bytes(sizes.arena_bytes)} of host RAM for {parked_tokens:,} parked tokens; {beyond}"


def curl_line(plan: ServerPlan) -> str:
    body = {
        "model": plan.model_id,
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "max_tokens": 64,
        "temperature": 0,
    }
    key = "" if plan.api_key_file is None else "-H 'Authorization: Bearer YOUR-KEY' "
    return (
        f"curl {url_of(plan)}/v1/chat/completions {key}-H 'Content-Type: application/json' -d "
        f"'{json.dumps(body, ensure_ascii=False)}'"
    )


def url_of(plan: ServerPlan) -> str:
    return f"http://{reachable(f'{plan.host}:{plan.port}')}"


def reachable(address: str) -> str:
    """HOST:PORT for a client on this machine of a server that listens there."""
    host, _, port = address.rpartition(":")
    bare = _ANY_HOST.get(host.strip("[]"), host.strip("[]"))
    return f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"


def _shards(sizes: Sizes) -> str:
    return "; ".join(
        f"rank {share.rank}: {share.query_heads.size} query and {share.kv_heads.size} KV heads"
        for share in sizes.shares
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
