"""What happens to work while the portal is away, or nobody reads the output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bai.__main__ import run
from bai.sdk.call import Problem, Unreachable
from tests.cli.stub import Stub, stub_portal

ID = "0b1f7d1e-6b0f-4f0f-9a52-6d3a2e1f0c11"
SESSION = {"id": ID, "name": "train", "status": "RUNNING", "kernels": []}
CLI = Path(__file__).resolve().parents[2] / "cli"
WITHOUT_PAUSES = "import bai.sdk.client as c; c.time.sleep = lambda s: None; from bai.__main__ import main; main()"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("BAI_TOKEN", "secret")
    monkeypatch.setattr("bai.sockets.time.sleep", lambda seconds: None)  # the same function as that of the client


def ended(stub: Stub) -> bool:
    return any("terminate" in one.path for one in stub.asked)


@pytest.mark.parametrize("away", [(503, {}), (0, None)])
def test_a_session_stays_when_the_portal_is_away_for_long(
    away: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with stub_portal((201, SESSION), away) as stub:
        monkeypatch.setenv("BAI_URL", stub.url)
        assert run(["run", "-c", "1"]) == 5
    assert len(stub.asked) > 5 and all("/ws/" in one.path for one in stub.asked[1:])
    said = capsys.readouterr().err
    assert "train stays: `bai rm train` ends it." in said and "does not answer" in said


@pytest.mark.parametrize(
    ("error", "code", "stays"),
    [
        (Unreachable("away"), 5, True),
        (Problem(409, {"code": "closed"}), 1, True),
        (Problem(503, {"code": "database-busy"}), 5, True),
        (Problem(409, {"code": "guest-does-not-start"}), 1, False),
    ],
)
def test_only_a_refusal_ends_the_session_that_was_started(
    error: Exception, code: int, stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def follow(run: Any) -> int:
        raise error

    monkeypatch.setattr("bai.running.CodeRun.follow", follow)
    with stub_portal((201, SESSION), (200, {"refused": []})) as stub:
        monkeypatch.setenv("BAI_URL", stub.url)
        assert run(["run", "-c", "1"]) == code
    assert ended(stub) != stays


def begin(stub: Stub, *words: str, **pipes: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WITHOUT_PAUSES, *words]
    environ = {**os.environ, "BAI_URL": stub.url, "PYTHONPATH": str(CLI)}
    return subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True, **pipes)


def test_it_ends_quietly_when_nobody_reads_its_output() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with stub_portal((200, {"results": []})) as stub:
        running = begin(stub, "image", "ls", stdout=writing)
        os.close(writing)
        _, said = running.communicate(timeout=60)
    assert (running.returncode, said) == (141, "")


def test_a_session_that_nobody_listens_to_ends_with_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def follow(run: Any) -> int:
        raise BrokenPipeError

    monkeypatch.setattr("bai.running.CodeRun.follow", follow)
    monkeypatch.setattr("bai.commands.root.os.dup2", lambda *descriptors: None)
    with stub_portal((201, SESSION), (200, {"refused": []})) as stub:
        monkeypatch.setenv("BAI_URL", stub.url)
        assert run(["run", "-c", "1"]) == 141
    assert ended(stub)


def test_a_connection_that_breaks_off_is_told_and_not_taken_for_the_output(tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as file:
        file.truncate(50_000_000)
    with stub_portal((200, SESSION), (0, None)) as stub:
        running = begin(stub, "cp", str(tmp_path / "big"), f"{ID}:big", stdout=subprocess.DEVNULL)
        _, said = running.communicate(timeout=60)
    assert running.returncode == 5 and "does not answer" in said, (running.returncode, said)
    assert len(stub.asked) == 6
