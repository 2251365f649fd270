"""What a server says of itself while it loads and when it is ready."""

import json

from deploy.config import format_bytes
from deploy.serve.plan import ServerPlan, Sizes


def loading_line(plan: ServerPlan, sizes: Sizes) -> str:
    ranks = _count(plan.tensor_parallel_size, "rank")
    return f"Loading {plan.model_id} on {ranks}: {format_bytes(sizes.weight_bytes)} of {plan.dtype} weights in memory"


def ready_lines(plan: ServerPlan, sizes: Sizes, seconds: float) -> list[str]:
    """The ready banner, a line each."""
    url = url_of(plan)
    pool = plan.num_pages * sizes.page_bytes
    per_request = -(-plan.max_model_len // plan.page_size)
    full_length = plan.num_pages / per_request
    arena = (
        f"{format_bytes(sizes.arena_bytes)} of host RAM for {plan.arena_pages * plan.page_size:,} parked tokens"
        if plan.park
        else "off: a request that overflows the pool fails"
    )
    return [
        f"Ready after {seconds:.1f} s: {url}",
        f"  KV pool   {plan.pool_tokens:,} tokens in {plan.num_pages:,} pages of {plan.page_size}, "
        f"{format_bytes(pool)} of {plan.kv_dtype}; {full_length:.2f} requests of {plan.max_model_len:,} tokens at once",
        f"  parking   {arena}",
        f"  shards    {_shards(sizes)}; sums over {plan.collective}, {_count(plan.num_threads, 'thread')} a rank",
        "Try it:",
        f"  {curl_line(plan)}",
    ]


def curl_line(plan: ServerPlan) -> str:
    body = {
        "model": plan.model_id,
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "max_tokens": 64,
        "temperature": 0,
    }
    return (
        f"curl {url_of(plan)}/v1/chat/completions -H 'Content-Type: application/json' -d "
        f"'{json.dumps(body, ensure_ascii=False)}'"
    )


def url_of(plan: ServerPlan) -> str:
    host = f"[{plan.host}]" if ":" in plan.host else plan.host
    return f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{plan.port}"


def _shards(sizes: Sizes) -> str:
    return "; ".join(
        f"rank {share.rank}: {share.query_heads.size} query and {share.kv_heads.size} KV heads"
        for share in sizes.shares
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
