"""The installed package: what importing it loads, how long that takes, and its command line."""

import subprocess
import sys
import sysconfig
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import pytest

import spadeful
from spadeful import _core

SCRIPT = [str(Path(sysconfig.get_path("scripts")) / "spadeful")]
MODULE = [sys.executable, "-m", "spadeful"]


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("spadeful", {"torch", "sklearn", "matplotlib", "typer", "rich", "scipy.sparse"}),
        ("spadeful.cli", {"torch", "sklearn", "matplotlib"}),
    ],
)
def test_import_leaves_optional_packages_alone(module, absent):
    loaded = set(run(sys.executable, "-c", f"import sys, {module}; print(*sys.modules)").split())
    assert module in loaded
    assert not loaded & absent


@pytest.mark.slow
def test_import_is_quick_beyond_numpy_and_scipy():
    script = (
        "import time, numpy, scipy.sparse\n"
        "start = time.perf_counter()\n"
        "import spadeful\n"
        "print(time.perf_counter() - start)"
    )
    assert min(float(run(sys.executable, "-c", script)) for _ in range(3)) < 0.3


def test_version_is_the_distribution_s():
    assert spadeful.__version__ == version("spadeful")
    assert "__version__" in dir(spadeful)


def test_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'spade'"):
        spadeful.spade  # noqa: B018


@pytest.mark.parametrize("command", [SCRIPT, MODULE], ids=["script", "module"])
def test_command_line_prints_version_and_help(command):
    assert run(*command, "--version") == f"spadeful {version('spadeful')}\n"
    assert "--version" in run(*command, "--help")


def test_package_is_typed_and_compiled():
    assert files("spadeful").joinpath("py.typed").is_file()
    assert Path(_core.__file__).suffix in {".so", ".pyd"}
