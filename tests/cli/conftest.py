"""One platform whose sessions are processes of this machine, and a person with the command at it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.patience import patient
from tests.system.platform import ROOT, Platform

_SECONDS = 120.0


@dataclass
class Person:
    """``home`` has the configuration, ``work`` is the current directory."""

    home: Path
    work: Path
    environ: dict[str, str]

    def run(self, *words: str, given: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a program to its end."""
        return subprocess.run(
            words,
            cwd=self.work,
            env={**self.environ, **environ},
            input=given,
            capture_output=True,
            text=True,
            timeout=patient(_SECONDS),
            check=False,
        )

    def bai(self, *words: str, code: int = 0, given: str = "", **environ: str) -> str:
        """Run the command, which must end with this code; returns its output."""
        done = self.run(sys.executable, "-m", "bai", *words, given=given, **environ)
        assert done.returncode == code, f"{words} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        self.said = done.stderr
        return done.stdout


@pytest.fixture(scope="package")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    serving = {"BACKENDAI_AGENT_NATIVE_SERVING": "yes"}
    with Platform(tmp_path_factory.mktemp("cli"), backend="process", extra=serving) as platform:
        yield platform


@pytest.fixture
def person(platform: Platform, tmp_path: Path) -> Person:
    """Somebody with an empty home and a token."""
    home, work, programs = tmp_path / "home", tmp_path / "work", tmp_path / "bin"
    for folder in (home, work, programs):
        folder.mkdir()
    command = programs / "bai"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m bai "$@"\n')
    command.chmod(0o755)
    environ = {
        "HOME": str(home),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "cli"),
        "BAI_URL": platform.url,
        "BAI_TOKEN": platform.client.token,
    }
    return Person(home, work, environ)
