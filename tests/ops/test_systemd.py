"""The units in ``deploy/systemd`` are understood by systemd, and stop what they start as the documentation says."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
COMMAND = "/opt/backendai/bin/backendai"
ANALYZE = shutil.which("systemd-analyze")
MOUNTS_APART = re.compile(
    r"^(Protect\w+|Private\w+|Read\w+Paths|InaccessiblePaths|BindPaths|TemporaryFileSystem)=", re.M
)


def service(name: str) -> dict[str, str]:
    found = configparser.ConfigParser(strict=False, interpolation=None)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read(ROOT / "deploy" / "systemd" / f"backendai-{name}.service")
    return dict(found["Service"])


@pytest.mark.style
@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed: apt-get install systemd")
def test_systemd_understands_every_unit(tmp_path: Path) -> None:
    for unit in UNITS:  # without what a machine with the platform has: the command
        (tmp_path / unit.name).write_text(unit.read_text().replace(COMMAND, sys.executable))
    command = [str(ANALYZE), "verify", "--man=no", *map(str, sorted(tmp_path.iterdir()))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_command_is_one_of_the_platform() -> None:
    started = {unit.stem: service(unit.stem.removeprefix("backendai-"))["ExecStart"].split() for unit in UNITS}
    assert {words[0] for words in started.values()} == {COMMAND}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DJANGO_")}
    for words in started.values():
        command = [sys.executable, "manage.py", words[1], "--help"]
        done = subprocess.run(command, cwd=ROOT, env=kept, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert [word for word in words[2:] if word.startswith("--") and word not in done.stdout] == []


def test_an_agent_shares_its_mounts_with_docker_and_leaves_sessions_alone() -> None:
    assert not MOUNTS_APART.search((ROOT / "deploy" / "systemd" / "backendai-agent.service").read_text())
    agent = service("agent")
    assert (agent["KillMode"], agent["OOMPolicy"], agent["NoNewPrivileges"]) == ("process", "continue", "yes")


@pytest.mark.parametrize("name", ["portal", "files"])
def test_processes_that_run_nothing_of_users_are_confined(name: str) -> None:
    told = service(name)
    assert (told["ProtectSystem"], told["PrivateTmp"], told["NoNewPrivileges"]) == ("strict", "yes", "yes")
    assert "CAP_SYS_ADMIN" not in told["CapabilityBoundingSet"]
