"""Processes that are forked from one that has loaded the code, under a supervisor of this process."""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest

from backendai.ops.run.child import Program
from backendai.ops.run.console import Console
from backendai.ops.run.supervisor import Supervisor
from backendai.ops.run.warm_parent.parent import NODE, PORTAL
from tests.patience import until

PATIENCE = 60.0

TELLS = """
import json, os, sys, threading
told = {
    "words": sys.argv, "name": __name__, "word": os.environ.get("WORD"), "pid": os.getpid(), "parent": os.getppid(),
    "leads": os.getsid(0) == os.getpid(), "descriptors": sorted(map(int, os.listdir("/proc/self/fd"))),
    "threads": len(os.listdir("/proc/self/task")), "modules": sorted(sys.modules),
    "shown": open("/proc/self/cmdline").read().rstrip(chr(0)),
}
print(json.dumps(told), flush=True)
"""
STAYS = "import os, time; print(os.getpid(), flush=True); time.sleep(1000)"


class Warm:
    """A supervisor with its warm parent, and scripts to run under it."""

    def __init__(self, folder: Path, supervisor: Supervisor) -> None:
        self.folder, self.supervisor = folder, supervisor

    def program(self, name: str, text: str, kind: str, *words: str, **options: Any) -> Program:
        script = self.folder / f"{name}.py"
        script.write_text(text)
        return Program(name, ("python", str(script), *words), {"WORD": "given"}, fork_from=kind, **options)

    def told(self, name: str, kind: str, *words: str) -> dict[str, Any]:
        """Return what the program said about itself."""
        assert self.supervisor.run_once(self.program(name, TELLS, kind, *words, restart=False)) == 0
        return dict(json.loads(self.log(name)))

    def log(self, name: str) -> str:
        path = self.folder / "logs" / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def until(self, pid_of: str, other: int = 0) -> int:
        """Return the number that a program's last line says once it is another one."""

        def last() -> int:
            return int(["0", *self.log(pid_of).split()][-1])

        assert self.supervisor.wait_until(lambda: last() not in (0, other), PATIENCE)
        return last()

    def parent(self) -> psutil.Process:
        return next(
            one for one in psutil.Process().children() if "backendai.ops.run.warm_parent.parent" in _command(one)
        )


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    folder, null = tmp_path_factory.mktemp("warm"), os.open(os.devnull, os.O_WRONLY)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DJANGO_SETTINGS_MODULE")
        with Supervisor(folder / "logs", terminal=Console(null), first_delay=0.01) as supervisor:
            supervisor.load_code(PATIENCE)
            yield Warm(folder, supervisor)
    os.close(null)


def test_what_it_forks_is_like_a_process_that_was_started(warm: Warm) -> None:
    portal = warm.told("portal", PORTAL, "one", "two words")
    assert portal["words"] == [str(warm.folder / "portal.py"), "one", "two words"] and portal["name"] == "__main__"
    assert portal["shown"].partition(" ")[2] == " ".join(portal["words"])
    assert portal["word"] == "given"
    assert portal["parent"] == os.getpid() and portal["leads"]
    assert portal["descriptors"][:3] == [0, 1, 2]
    assert len(portal["descriptors"]) == 4  # the list itself
    assert portal["threads"] == 1
    assert {"backendai.urls", "backendai.portal.loops.tasks", "uvicorn"} <= set(portal["modules"])

    node = warm.told("node", NODE)
    assert "backendai.agent.loop.runtime" in node["modules"]
    assert not {"backendai.settings.portal", "backendai.domain.accounts.models"} & set(node["modules"])

    failing = warm.program("failing", "import sys; print('so it ends', file=sys.stderr); sys.exit(7)", PORTAL)
    assert warm.supervisor.run_once(failing) == 7
    assert warm.log("failing") == "so it ends\n"
    module = Program("module", ("python", "-m", "json.tool", "--help"), restart=False, fork_from=NODE)
    assert warm.supervisor.run_once(module) == 0
    assert "usage:" in warm.log("module")


def test_its_end_harms_no_process_and_the_next_one_is_forked_again(warm: Warm) -> None:
    warm.supervisor.start(warm.program("steady", STAYS, PORTAL))
    warm.supervisor.start(warm.program("quiet", STAYS, NODE))
    portal, node = psutil.Process(warm.until("steady")), psutil.Process(warm.until("quiet"))
    former = warm.parent()
    below = former.children()
    former.kill()
    until_gone(former, *below)
    assert "backendai.urls" not in warm.told("meanwhile", PORTAL)["modules"]  # started the usual way
    assert portal.is_running() and node.is_running()

    assert warm.supervisor.wait_until(lambda: bool(_ready_after(warm, former.pid)), PATIENCE)
    portal.kill()
    again = psutil.Process(warm.until("steady", portal.pid))
    assert again.ppid() == os.getpid() and not again.children()
    assert "backendai.urls" in warm.told("later", PORTAL)["modules"]
    assert node.is_running()


def test_the_parent_begins_anew_without_its_half_that_has_loaded_the_portal(warm: Warm) -> None:
    former = warm.parent()
    former.children()[0].send_signal(signal.SIGKILL)
    assert warm.supervisor.wait_until(lambda: bool(_ready_after(warm, former.pid)), PATIENCE)
    assert "backendai.urls" in warm.told("anew", PORTAL)["modules"]


def test_the_supervisor_kills_what_it_forked_with_all_its_group(warm: Warm) -> None:
    warm.supervisor.start(warm.program("deaf", f"import signal; signal.signal(15, signal.SIG_IGN); {STAYS}", NODE))
    child = psutil.Process(warm.until("deaf"))
    assert os.getpgid(child.pid) == child.pid
    warm.supervisor._children[-1].kill()
    until_gone(child)


def test_an_old_linux_starts_everything_the_usual_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pidfd_open", Mock(side_effect=OSError(errno.ENOSYS, "not here")))
    null, before = os.open(os.devnull, os.O_WRONLY), psutil.Process().children()
    with Supervisor(tmp_path / "logs", terminal=Console(null)) as supervisor:
        supervisor.load_code(PATIENCE)
        assert psutil.Process().children() == before
        assert Warm(tmp_path, supervisor).told("portal", PORTAL)["word"] == "given"
    os.close(null)


def until_gone(*processes: psutil.Process) -> None:
    """Wait for their ends, without the supervisor."""
    until(lambda: not any(_is_alive(one) for one in processes), PATIENCE, "the processes have ended")


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:  # gone between the two questions
        return False


def _ready_after(warm: Warm, former: int) -> list[psutil.Process]:
    """Return what loads the portal below the parent that came after another, once it serves."""
    parents = [one for one in _below(psutil.Process()) if "warm_parent" in _command(one) and one.pid != former]
    return [child for one in parents for child in _below(one) if _command(child).endswith(f" {PORTAL}")]


def _below(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children())
    except psutil.Error:
        return []


def _command(process: psutil.Process) -> str:
    """Return the command line; nothing of a process that has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
