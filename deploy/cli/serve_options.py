"""The flags of `parkade serve`, one for each setting of `ServeConfig`, with the help that teaches them.

A flag that is not given is None and leaves the config file's value, or the default, in force.
"""

from pathlib import Path
from typing import Annotated

import typer

from deploy.config import ServeConfig, format_bytes


def _default(name: str) -> str | bool:
    """The setting's default as help shows it; False shows none."""
    value = ServeConfig.model_fields[name].default
    if name == "host_ram":
        return format_bytes(value).replace(" ", "")
    return False if value is None else str(value)


Model = Annotated[
    str | None,
    typer.Argument(
        help="A known name (parkade model list), a Hugging Face model folder, or a hub id owner/name.",
        show_default=False,
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="YAML file with the same names as these flags; flags win over it."),
]
ServedModelName = Annotated[
    str | None, typer.Option(help="The model's name in requests.", show_default="the name or the folder's name")
]
Host = Annotated[str | None, typer.Option(help="Address to listen on.", show_default=_default("host"))]
Port = Annotated[int | None, typer.Option(help="Port to listen on.", show_default=_default("port"))]
ApiKeyFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="API keys, one a line. With it every HTTP request needs one (Authorization: Bearer KEY), and a key sees "
        "and steers only its own requests.",
        show_default="no keys: whoever reaches the port may use it",
    ),
]
AdminHost = Annotated[
    str | None, typer.Option(help="Address of the gRPC admin interface.", show_default=_default("admin_host"))
]
AdminPort = Annotated[
    int | None,
    typer.Option(help="Port of the gRPC admin interface; 0 takes any free one.", show_default="the port after --port"),
]
AdminTokenFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File with the token that admin calls must carry, 16 characters at least.",
        show_default="a new token at each start, in a file of mode 0600",
    ),
]
AdminTlsCert = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="PEM certificate chain for the admin interface; without it, no TLS."),
]
AdminTlsKey = Annotated[Path | None, typer.Option(metavar="FILE", help="PEM private key of that certificate.")]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        help="Port of Ray's Prometheus page, /metrics, on all interfaces. A Ray that is joined has its own.",
        show_default="any free one; the banner shows it",
    ),
]
TensorParallelSize = Annotated[
    int | None,
    typer.Option(
        help="Ranks that share the model: 1 up to its number of query heads; heads need not divide evenly.",
        show_default=_default("tensor_parallel_size"),
    ),
]
KvPoolTokens = Annotated[
    int | None,
    typer.Option(
        help="Tokens of all live requests together that the KV pool holds. When it is full, requests park.",
        show_default=_default("kv_pool_tokens"),
    ),
]
PageSize = Annotated[
    int | None, typer.Option(help="Tokens a page; a multiple of 16.", show_default=_default("page_size"))
]
HostRam = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="Host RAM for parked requests, all ranks together: 512MiB, 2GiB, 1.5GB. Used only while they park. "
        "0: what is parked is dropped and computed again.",
        show_default=_default("host_ram"),
    ),
]
Park = Annotated[
    bool | None,
    typer.Option(
        "--park/--no-park",
        help="Park requests when the pool is full. Without it a request that overflows the pool fails.",
        show_default="park",
    ),
]
Recompute = Annotated[
    bool | None,
    typer.Option(
        "--recompute/--no-recompute",
        help="When host RAM is full, drop a parked request's pages and compute its tokens again later. Without it such "
        "a request runs on, and new ones get 429.",
        show_default="recompute",
    ),
]
MaxRunning = Annotated[
    int | None, typer.Option(help="Requests in one step, at most.", show_default=_default("max_running"))
]
MaxModelLen = Annotated[
    int | None, typer.Option(help="Longest prompt and answer together, in tokens.", show_default="the model's own")
]
MaxStepTokens = Annotated[
    int | None,
    typer.Option(
        help="Tokens in one step; longer prompts are computed in chunks.", show_default=_default("max_step_tokens")
    ),
]
MaxQueuedRequests = Annotated[
    int | None,
    typer.Option(help="Requests that may wait; the next gets 429.", show_default=_default("max_queued_requests")),
]
MaxQueuedTokens = Annotated[
    int | None,
    typer.Option(
        help="Prompt tokens that may wait, all requests together; the next request gets 429.",
        show_default=_default("max_queued_tokens"),
    ),
]
Dtype = Annotated[
    str | None, typer.Option(metavar="bfloat16|float32", help="Weights in memory.", show_default=_default("dtype"))
]
KvDtype = Annotated[
    str | None, typer.Option(metavar="bfloat16|float32", help="Keys and values.", show_default=_default("kv_dtype"))
]
Backend = Annotated[
    str | None,
    typer.Option(
        metavar="numba|sdpa|flash",
        help="Kernels: numba (CPU), sdpa (torch, any device), flash (CUDA).",
        show_default=_default("backend"),
    ),
]
CollectiveKind = Annotated[
    str | None,
    typer.Option(
        "--collective",
        metavar="auto|shm|gloo|nccl",
        help="How ranks sum: shm (own shared memory, one host), gloo, nccl (CUDA).",
        show_default=_default("collective"),
    ),
]
NumThreads = Annotated[int | None, typer.Option(help="Compute threads a rank.", show_default="cores divided by ranks")]
RayAddress = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Join this running Ray.", show_default="start an own local Ray"),
]
LogLevel = Annotated[
    str | None,
    typer.Option(
        metavar="debug|info|warning|error", help="What is logged on stderr.", show_default=_default("log_level")
    ),
]
Debug = Annotated[
    bool, typer.Option("--debug", help="Show the trace of an error, log everything, keep the log folder.")
]
