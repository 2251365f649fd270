"""The house rules that can be read off the source: sizes, names, docstrings, and what must not be written at all."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("kv", "scheduler", "workers", "cluster", "deploy", "bench")
GENERATED = set((ROOT / "deploy/admin/v1").glob("admin_pb2*.py"))
SOURCES = sorted({path for package in PACKAGES for path in (ROOT / package).rglob("*.py")} - GENERATED)
TESTS = sorted(path for path in (ROOT / "tests").rglob("*.py") if path.name != "__init__.py")

MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 50
MAX_CLASS_LINES = 200
FORBIDDEN_NAMES = {"utils", "util", "common", "helpers", "helper", "misc", "core", "base", "stuff"}

# Path to the reason why the name may stand.
ALLOWED_NAMES = {
    "scheduler/engine/core.py": "the functional core of the engine: no loop, no clock, no I/O",
    "scheduler/admission/core.py": "the functional core of admission: no actor, no clock, no I/O",
}
# "path:function" to the reason why it may be longer.
LONG_FUNCTIONS = {
    "workers/kernels/attention_tile.py:make_attend_tile": "a closure over the encoding that holds the whole kernel",
    "workers/kernels/linear.py:_make_kernel": "a closure over compile-time sizes that holds the whole kernel",
}
# Folders whose job is to speak to a terminal.
PRINTERS = ("deploy/cli/", "bench/")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def definitions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node


def num_lines(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def test_every_package_has_sources() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in SOURCES} == set(PACKAGES)


def test_no_file_is_longer_than_the_ceiling() -> None:
    lengths = {name_of(path): len(path.read_text().splitlines()) for path in SOURCES + TESTS}
    assert {name: length for name, length in lengths.items() if length > MAX_FILE_LINES} == {}


def test_no_function_or_class_is_longer_than_the_ceiling() -> None:
    too_long = {}
    for path in SOURCES:
        for node in definitions(path):
            ceiling = MAX_CLASS_LINES if isinstance(node, ast.ClassDef) else MAX_FUNCTION_LINES
            key = f"{name_of(path)}:{node.name}"
            if num_lines(node) > ceiling and key not in LONG_FUNCTIONS:
                too_long[key] = num_lines(node)
    assert too_long == {}


def test_every_exemption_is_still_needed() -> None:
    long = {
        f"{name_of(path)}:{node.name}"
        for path in SOURCES
        for node in definitions(path)
        if num_lines(node) > (MAX_CLASS_LINES if isinstance(node, ast.ClassDef) else MAX_FUNCTION_LINES)
    }
    assert set(LONG_FUNCTIONS) <= long
    assert {name for name in ALLOWED_NAMES if not (ROOT / name).exists()} == set()


def test_every_module_states_its_contract() -> None:
    assert [name_of(path) for path in SOURCES + TESTS if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_files_and_folders_name_an_idea() -> None:
    bad = {
        name_of(path)
        for path in SOURCES
        if FORBIDDEN_NAMES & {path.stem, *path.relative_to(ROOT).parts[:-1]} and name_of(path) not in ALLOWED_NAMES
    }
    assert bad == set()


def test_nothing_is_left_for_later_in_a_comment() -> None:
    marker = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")) + r")\b")
    assert [name_of(path) for path in SOURCES + TESTS if marker.search(path.read_text())] == []


def test_only_the_command_line_prints() -> None:
    printing = [
        f"{name_of(path)}:{node.lineno}"
        for path in SOURCES
        if not name_of(path).startswith(PRINTERS)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert printing == []


def test_the_pure_floors_read_no_environment_and_no_clock_of_their_own() -> None:
    reading = {
        f"{name_of(path)}:{node.lineno}"
        for path in SOURCES
        if name_of(path).startswith(("kv/", "scheduler/"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func) in {"os.getenv", "os.environ.get", "time.time", "time.monotonic", "random.random"}
    }
    assert reading == set()


def test_init_files_hold_no_logic() -> None:
    allowed = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.Expr)
    busy = [
        name_of(path)
        for path in SOURCES
        if path.name == "__init__.py"
        for node in ast.parse(path.read_text()).body
        if not isinstance(node, allowed)
    ]
    assert busy == []


def imported_roots(path: Path) -> set[str]:
    roots = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            roots.add(node.module.split(".")[0])
    return roots


def test_no_pickle_is_loaded_anywhere() -> None:
    """Ray pickles between its own processes; no socket of ours does."""
    pickles = {"pickle", "cloudpickle", "dill", "marshal", "shelve"}
    assert [name_of(path) for path in SOURCES if imported_roots(path) & pickles] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").exists()
