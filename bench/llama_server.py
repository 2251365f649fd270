"""llama.cpp's server as a peer: binary and weights come from the user, nothing of it is in this project."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from bench.http_arm import HttpArm
from bench.subprocess_server import require_file, running
from workers.ports import free_port

# Its own words for: reuse no prefix. Greedy and endless are said with the fields every server knows.
EXTRA_FIELDS = {"cache_prompt": False}
CONTEXT_GRAIN = 256


def llama_command(
    binary: Path, gguf: Path, *, port: int, num_slots: int, slot_tokens: int, num_threads: int
) -> list[str]:
    """`slot_tokens` of context for each of `num_slots` streams, rounded up; loopback only."""
    per_slot = -(-slot_tokens // CONTEXT_GRAIN) * CONTEXT_GRAIN
    return [
        str(require_file(binary, "llama-server")),
        *("--model", str(require_file(gguf, "the GGUF"))),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--threads", str(num_threads), "--threads-batch", str(num_threads)),
        *("--parallel", str(num_slots), "--ctx-size", str(per_slot * num_slots)),
        # No second store of prompts in RAM, which would be filled between streams; no web page.
        *("--cache-ram", "0", "--no-webui"),
    ]


@contextlib.contextmanager
def llama_arm(binary: Path, gguf: Path, *, num_slots: int, slot_tokens: int, num_threads: int) -> Iterator[HttpArm]:
    port = free_port()
    command = llama_command(
        binary, gguf, port=port, num_slots=num_slots, slot_tokens=slot_tokens, num_threads=num_threads
    )
    with running(command, port) as server:
        yield HttpArm("llama.cpp", server.url, server.model, extra=EXTRA_FIELDS)
