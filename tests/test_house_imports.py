"""The house rules that show only when something is imported: purity, shadows, and who owns the package names."""

import importlib
import importlib.metadata
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("kv", "scheduler", "workers", "cluster", "deploy", "bench")

IMPORT_ALL = """
import importlib, pkgutil, sys
for name in ("torch", "ray", "numpy", "pydantic", "msgspec", "numba", "fastapi", "httpx"):
    sys.modules[name] = None            # importing it raises ImportError
package = importlib.import_module(sys.argv[1])
names = [module.name for module in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""


def run_python(code: str, *args: str) -> str:
    # -S leaves site-packages off the path, so that nothing but the standard library and the house can be found at all.
    command = [sys.executable, "-S", "-c", code, *args]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("package", ["kv", "scheduler"])
def test_the_pure_floors_import_with_everything_else_blocked(package: str) -> None:
    assert int(run_python(IMPORT_ALL, package)) > 0


def test_all_packages_share_one_root() -> None:
    roots = {Path(importlib.import_module(package).__path__[0]).resolve().parent for package in PACKAGES}
    assert len(roots) == 1


def test_no_other_distribution_owns_our_names() -> None:
    owners = importlib.metadata.packages_distributions()
    foreign = {name: set(owners.get(name, ())) - {"parkade"} for name in PACKAGES}
    assert {name: names for name, names in foreign.items() if names} == {}


def test_no_foreign_copy_lies_in_site_packages() -> None:
    """A distribution that came without metadata would overwrite ours in silence."""
    site = Path(sysconfig.get_paths()["purelib"])
    distribution = importlib.metadata.distribution("parkade")
    ours = {str(path).split("/", maxsplit=1)[0] for path in distribution.files or ()}
    lying = {package for package in PACKAGES if (site / package).exists() or (site / f"{package}.py").exists()}
    assert lying - ours == set()


def test_no_script_shadows_a_package() -> None:
    """Python and Ray put a script's own folder first on the path."""
    names = set(PACKAGES) | {"torch", "ray", "numpy", "numba", "httpx", "typer"}
    skipped = {".venv", ".git", "__pycache__", "node_modules", "build", "dist"}
    shadows = [
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if path.stem in names and not skipped & set(path.relative_to(ROOT).parts)
    ]
    assert shadows == []


def test_test_folders_are_not_packages() -> None:
    """`tests/kv/__init__.py` would make `kv` mean the tests of kv."""
    assert sorted((ROOT / "tests").rglob("__init__.py")) == [ROOT / "tests" / "__init__.py"]
