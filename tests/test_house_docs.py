"""The documents against the code: files they name exist, and commands and flags they show are those of the CLI."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from cluster.instruments import ADMISSION_INSTRUMENTS, ENGINE_INSTRUMENTS, GATEWAY_INSTRUMENTS
from deploy.cli import app

ROOT = Path(__file__).resolve().parent.parent
DOCS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PACKAGES = ("kv", "scheduler", "workers", "cluster", "deploy", "bench", "tests", "docs")


def document_id(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], set[str]]]:
    """Every command of the CLI with the flags it takes."""
    children = getattr(command, "commands", {})
    yield (
        words,
        {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)} | {"--help"},
    )
    for name, child in children.items():
        yield from commands(child, (*words, name))


def shown_commands(text: str) -> Iterator[list[str]]:
    """Lines of code blocks that call `parkade`, continuation lines joined."""
    for block in re.findall(r"```(?:bash|sh|console)?\n(.*?)```", text, flags=re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            command = line.strip().removeprefix("$ ")
            if re.match(r"(\S*/)?parkade\s", command):
                yield shlex.split(command, comments=True)[1:]


@pytest.mark.parametrize("path", DOCS, ids=document_id)
def test_every_command_and_flag_shown_exists(path: Path) -> None:
    known = dict(commands(typer.main.get_command(app)))
    for words in shown_commands(path.read_text()):
        names = max((name for name in known if tuple(words[: len(name)]) == name), key=len)
        assert names, f"`parkade {' '.join(words)}` is no command"
        flags = {word.split("=")[0] for word in words if word.startswith("--")}
        assert flags <= known[names], f"`parkade {' '.join(words)}` in {path.name}"


@pytest.mark.parametrize("path", DOCS, ids=document_id)
def test_every_file_named_exists(path: Path) -> None:
    named = set(re.findall(rf"`((?:{'|'.join(PACKAGES)})/[\w./-]*)`", path.read_text()))
    assert {name for name in named if not (ROOT / name).exists()} == set()


@pytest.mark.parametrize("path", DOCS, ids=document_id)
def test_every_relative_link_leads_somewhere(path: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", path.read_text())
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_the_readme_shows_how_to_serve() -> None:
    words = list(shown_commands((ROOT / "README.md").read_text()))
    assert any(line[0] == "serve" for line in words)


def test_operations_explains_every_metric() -> None:
    named = {instrument.name for instrument in (*ADMISSION_INSTRUMENTS, *ENGINE_INSTRUMENTS, *GATEWAY_INSTRUMENTS)}
    shown = set(re.findall(r"^\| `(parkade_\w+)`", (ROOT / "docs/operations.md").read_text(), flags=re.MULTILINE))
    assert shown == named


def test_the_api_document_tells_every_error_code() -> None:
    sources = [path.read_text() for path in (ROOT / "deploy").rglob("*.py")]
    codes = {code for source in sources for code in re.findall(r'code="(\w+)"', source)}
    assert {"internal", "body_too_large", "empty_array", "not_supported"} <= codes
    text = (ROOT / "docs/api.md").read_text()
    assert {code for code in codes if f"`{code}`" not in text} == set()
