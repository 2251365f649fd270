"""A port on which the last server hung up first is taken again at once, and one that is in use is not."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(("arguments", "lingering"), [((), "refused"), (("layers",), "listened")])
def test_serve_listens_where_a_port_only_lingers_once_it_has_our_layers(
    arguments: tuple[str, ...], lingering: str
) -> None:
    program = [sys.executable, "-m", "tests.deploy.serve.serve_listener", *arguments]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines() == [f"lingering: {lingering}", "taken: refused"]
