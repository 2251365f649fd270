"""Servers as subprocesses: awaited, ended, and clear words when they do not start."""

import sys
from pathlib import Path

import httpx
import pytest

from bench.llama_server import llama_command
from bench.subprocess_server import ServerError, first_model_of, parkade_command, running
from workers.ports import free_port

SERVER = """
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"data": [{"id": "tiny"}]} if self.path == "/v1/models" else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass

HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_a_server_is_awaited_named_and_ended() -> None:
    port = free_port()
    with running([sys.executable, "-c", SERVER, str(port)], port) as server:
        assert server.model == "tiny"
        assert server.ready_s > 0
        assert first_model_of(server.url + "/v1") == "tiny"
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/health")


def test_a_server_that_ends_at_once_is_quoted() -> None:
    command = [sys.executable, "-c", "print('no such model folder'); raise SystemExit(1)"]
    with pytest.raises(ServerError, match=r"code 1 before it was ready:\nno such model folder"), running(command, 1):
        pass


def test_a_url_where_nobody_lists_models_is_told() -> None:
    with pytest.raises(ServerError, match="does not list its models"):
        first_model_of(f"http://127.0.0.1:{free_port()}")


def test_parkade_is_started_on_loopback_with_its_options() -> None:
    command = parkade_command("a-model", 1234, ["--no-park"])
    assert command[0] == sys.executable
    assert command[3:] == ["serve", "a-model", "--host", "127.0.0.1", "--port", "1234", "--no-park"]


def test_llama_server_gets_whole_context_for_every_stream(tmp_path: Path) -> None:
    binary, gguf = tmp_path / "llama-server", tmp_path / "model.gguf"
    binary.touch()
    gguf.touch()
    command = llama_command(binary, gguf, port=1, num_slots=16, slot_tokens=600, num_threads=2)
    options = dict(zip(command[1::2], command[2::2], strict=False))
    assert options["--parallel"] == "16"
    assert options["--ctx-size"] == str(16 * 768)  # 600 rounded up to 256s
    assert options["--threads"] == options["--threads-batch"] == "2"
    assert options["--host"] == "127.0.0.1"


def test_a_missing_peer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match=r"llama-server .* is no file"):
        llama_command(tmp_path / "x", tmp_path / "y", port=1, num_slots=1, slot_tokens=1, num_threads=1)
