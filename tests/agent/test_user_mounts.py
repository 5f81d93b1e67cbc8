"""Folders on an agent of an ordinary user: mounted and cut off with bubblewrap, and what is refused without it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from backendai.agent.backends.native.sandbox import open_to_all
from backendai.agent.mounts import cutting
from tests.agent.prerequisites import need_program
from tests.agent.test_mounts import mount_of
from tests.mount_tools import folder_on_disk, root_on_disk

_NOBODY = 65534
_CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that every user reaches."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def test_a_user_without_rights_cuts_off_the_sandbox_that_is_their_own(open_place: Path) -> None:
    need_program("bwrap", "bubblewrap")
    folder = uuid4()
    data = folder_on_disk(open_place, folder, uid=_NOBODY)
    person = ["setpriv", "--reuid", str(_NOBODY), "--regid", str(_NOBODY), "--clear-groups", "--"]
    person = person if os.geteuid() == 0 else []
    inside = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--bind", str(data), "/mnt"]
    sandbox = subprocess.Popen(
        [*person, *inside, "sh", "-c", "exec 3>/mnt/held; echo ready; sleep 600"], stdin=-1, stdout=-1, text=True
    )
    assert sandbox.stdin and sandbox.stdout and sandbox.stdout.readline() == "ready\n"
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(sandbox.pid)], capture_output=True, text=True)
    code = "import sys; sys.path.insert(0, sys.argv[1]); from backendai.agent.mounts.cutting import main; main()"
    order = json.dumps({"pids": [int(children.stdout.split()[0])], "folder": str(folder)})
    package = str(Path(cutting.__file__).parents[3])
    python = [*person, "/usr/bin/python3", "-I", "-S", "-c", code, package]
    told = subprocess.run(python, input=order, capture_output=True, text=True, cwd="/")
    sandbox.kill()
    assert json.loads(told.stdout)["ended"] >= 1, told


def _python_for_everybody() -> str:
    """Return a Python that every user can run, of the version of this one's packages."""
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        if Path(python).exists() and open_to_all(Path(python)) and open_to_all(Path(pytest.__file__)):
            return python
    pytest.skip("other users reach no Python of this version, or not this checkout")


@pytest.mark.parametrize("has_bubblewrap", [True, False])
def test_an_ordinary_user_mounts_folders_with_bubblewrap_and_is_told_what_needs_it(
    open_place: Path, has_bubblewrap: bool
) -> None:
    need_program("bwrap", "bubblewrap")
    python = _python_for_everybody()
    person, folder = (_NOBODY if os.geteuid() == 0 else os.geteuid()), uuid4()
    root = root_on_disk(open_place / "storage", deployment="test", uid=person)
    data = folder_on_disk(root, folder, uid=person)
    agent = open_place / "agent"
    agent.mkdir()
    os.chown(agent, person, -1)
    path = os.environ["PATH"]
    if not has_bubblewrap:
        path = str(open_place / "bin")
        Path(path).mkdir()
        for program in {one.name for one in Path("/usr/bin").iterdir()} - {"bwrap"}:
            Path(path, program).symlink_to(f"/usr/bin/{program}")
    wanted = [mount_of(folder), mount_of(folder, rights="view")]
    order = {"agent": str(agent), "root": str(root), "mounts": [one.model_dump(mode="json") for one in wanted]}
    became = [shutil.which("setpriv") or "", "--reuid", str(person), "--regid", str(person), "--clear-groups", "--"]
    environ = {"PATH": path, "PYTHONPATH": f"{_CHECKOUT}:{Path(pytest.__file__).parents[1]}"}
    command = [*(became if os.geteuid() == 0 else []), python, "-m", "tests.agent.ordinary_user"]
    told = subprocess.run(command, input=json.dumps(order), env=environ, cwd="/", capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    hosts, first, second = json.loads(told.stdout)
    assert (hosts, first) == ([["", has_bubblewrap]], "")
    assert (data / "file").read_text() == "hello\n" and (data / "file").stat().st_uid == person
    if has_bubblewrap:
        assert second.startswith("hello\n") and "Read-only file system" in second
    else:
        assert second == "Folder data cannot be mounted read-only here: this agent has no bubblewrap."
