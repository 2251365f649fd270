"""What `parkade bench` and `parkade demo` refuse before they start anything."""

import pytest
import typer
from typer.testing import CliRunner

from bench.options import parse_streams
from deploy.cli import app

RUNNER = CliRunner()


@pytest.mark.parametrize(("text", "counts"), [("1", (1,)), ("8,1,4", (1, 4, 8)), ("4,4, 16", (4, 16))])
def test_streams_are_read_in_order_and_once(text: str, counts: tuple[int, ...]) -> None:
    assert parse_streams(text) == counts


@pytest.mark.parametrize("text", ["", "0", "-1", "257", "1,x", "1;2"])
def test_absurd_streams_are_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_streams(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "engine", "--check"], "--check compares with llama-server"),
        (["bench", "engine", "--gguf", "x"], "come together"),
        (["bench", "engine", "--arms", "HTTP TP3"], "no such arm: HTTP TP3"),
    ],
)
def test_a_bench_that_could_not_end_well_is_refused_at_once(arguments: list[str], message: str) -> None:
    result = RUNNER.invoke(app, arguments, env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", " ").split())


def test_an_unknown_model_is_one_line_and_exit_code_2() -> None:
    result = RUNNER.invoke(app, ["bench", "engine", "--model", "no such model"])
    assert result.exit_code == 2
    assert result.output.startswith("parkade: unknown model 'no such model'")
    assert result.output.count("\n") == 1
