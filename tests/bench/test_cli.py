"""What `parkade bench` and `parkade demo` refuse before they start anything."""

import pytest
import typer
from typer.testing import CliRunner

from bench.options import parse_parts, parse_sizes, parse_streams
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "pressure", "--part", "8k,32k"], "no such part: '32k'"),
        (["bench", "exactness", "--ranks", "3"], "each number must lie between 1 and 2"),
        (["bench", "exactness", "--part", ""], "no such part"),
        (["bench", "copies", "--sizes", "0"], "between 1 and 65536"),
        (["bench", "boundary", "--pool-tokens", "100"], "greater than or equal to 512"),
    ],
)
def test_a_proof_that_makes_no_sense_is_refused_at_once(arguments: list[str], message: str) -> None:
    result = RUNNER.invoke(app, arguments, env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", " ").split())


def test_parts_are_taken_once_each_and_in_their_own_order() -> None:
    assert parse_parts(" small, 8k,small", ("8k", "16k", "small")) == ("8k", "small")


@pytest.mark.parametrize("text", ["1,,2", "x", "0", "9"])
def test_sizes_outside_their_bounds_are_refused(text: str) -> None:
    assert parse_sizes("8,3,3", 8) == (3, 8)
    with pytest.raises(typer.BadParameter):
        parse_sizes(text, 8)
