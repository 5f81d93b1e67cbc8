"""Parts of the check that fail: a few tests get a second try alone, and everything else stays a failure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECK = """
set -euo pipefail
source {root}/.ci/parts.sh
SCRATCH={folder} LOGS={folder}/logs PYTHON={python}
part_of_tests steady "$PYTHON" -m pytest -q -p no:django {folder}/test_steady.py
part_of_tests tried "$PYTHON" -m pytest -q -p no:django {folder}/test_tried.py
run_parts 2 steady tried
"""
UNSTEADY = """
from pathlib import Path
def test_it(): 
    mark = Path(__file__).with_suffix(".mark")
    was_there = mark.exists()
    mark.touch()
    assert was_there
"""
BROKEN = "def test_it(): assert False\n"
MANY = "import pytest\n@pytest.mark.parametrize('n', range(4))\ndef test_it(n): assert False\n"
LEAKY = """
import pytest
@pytest.fixture(scope="session")
def platform():
    yield
    left = [7]
    assert not left, f"processes were left behind: {left}"
def test_it(platform): pass
"""
CRASHED = "import os\ndef test_it(): os._exit(3)\n"


def check(folder: Path, tests: str) -> subprocess.CompletedProcess[str]:
    (folder / "logs").mkdir()
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")  # as in the project
    (folder / "test_steady.py").write_text("def test_it(): pass\n")
    (folder / "test_tried.py").write_text(tests)
    script = CHECK.format(root=ROOT, folder=folder, python=sys.executable)
    return subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        timeout=100,
        env={"PATH": "/usr/bin:/bin", "BACKENDAI_TEST_REDIS_URL": "redis://nowhere/0"},
        cwd=folder,
    )


def test_a_test_that_passes_alone_is_named_as_unsteady(tmp_path: Path) -> None:
    done = check(tmp_path, UNSTEADY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "UNSTEADY tried" in done.stdout and "  test_tried.py::test_it" in done.stdout
    assert "All is well." in done.stdout


@pytest.mark.parametrize(("tests", "tries"), [(BROKEN, 2), (MANY, 1), (LEAKY, 1), (CRASHED, 1)])
def test_what_fails_again_or_was_no_accident_stays_a_failure(tmp_path: Path, tests: str, tries: int) -> None:
    done = check(tmp_path, tests)
    assert done.returncode == 1
    assert "FAILED: tried" in done.stdout and "UNSTEADY" not in done.stdout
    assert len(list((tmp_path / "logs").glob("part-tried*.log"))) == tries
