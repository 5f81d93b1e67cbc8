"""Packages that people install, in the environments that the recipe of the image ``python`` makes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.prerequisites import need_program, need_root
from tests.images.own_packages import Run, check_cells, check_pip

pytestmark = [pytest.mark.ci, pytest.mark.timeout(600)]
IMAGE = Path(__file__).resolve().parents[2] / "images" / "python"
PATH = "/home/work/.local/bin:/opt/own/bin:/opt/kernel/bin:/usr/bin:/bin"
PYTHON = f"{sys.base_prefix}/bin/python3"
# The recipe's own steps; of Jupyter only what runs the cells of a notebook.
STEPS = f"""
{PYTHON} -m venv --system-site-packages /opt/kernel
/opt/kernel/bin/pip install --quiet --disable-pip-version-check --ignore-installed ipykernel nbclient
{PYTHON} -m venv --system-site-packages --without-pip /opt/own
/opt/kernel/bin/python {IMAGE}/make-own
"""


def session_of(opt: Path, home: Path) -> Run:
    """Return what runs commands where the folders are ``/opt`` and the home of a session."""
    binds = ["--dev-bind", "/", "/", "--bind", opt, "/opt", "--tmpfs", "/home", "--bind", home, "/home/work"]
    binds += ["--tmpfs", "/etc/profile.d", "--ro-bind", IMAGE / "own.sh", "/etc/profile.d/own.sh"]
    told = {"PATH": PATH, "HOME": "/home/work", "LANG": "C.UTF-8", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    told |= {"PIP_ROOT_USER_ACTION": "ignore"}
    words = ["bwrap", *map(str, binds), "--chdir", "/home/work"]

    def run(*command: str) -> str:
        done = subprocess.run([*words, *command], env=told, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    return run


@pytest.fixture(scope="module")
def opt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need_root("what lies in /opt belongs to root")
    need_program("bwrap", "bubblewrap")
    folder = tmp_path_factory.mktemp("opt")
    session_of(folder, tmp_path_factory.mktemp("building"))("sh", "-ec", STEPS)
    return folder


@pytest.fixture
def run(opt: Path, tmp_path: Path) -> Iterator[Run]:
    run = session_of(opt, tmp_path)
    yield run
    run("sh", "-c", "pip uninstall --quiet --yes fresh packaging 2>/dev/null; true")


def test_pip_keeps_packages_for_the_session_beside_those_of_the_image(run: Run, tmp_path: Path) -> None:
    check_pip(run, tmp_path)


def test_a_cell_imports_what_the_one_before_installed(run: Run, tmp_path: Path) -> None:
    check_cells(run, tmp_path)
