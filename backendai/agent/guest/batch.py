"""Runs shell commands as a run: clean, build, then the command itself, each in a process group of its own.

They run in the home folder, as clients send the files of a run there."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any, Iterator  # noqa: UP035

from backendai.agent.guest import processes

_PATIENCE = 10.0  # after an interrupt; a command has no state to lose
_NOT_FOUND = BUILD_FAILED = 127
_USUAL = "*"


class Batch:
    """The steps of one run."""

    def __init__(self, hear: processes.Hear) -> None:
        self._hear = hear
        self._program: processes.Program | None = None
        self._is_interrupted = False

    async def run(self, step: str, command: str) -> int:
        """Run one step and return its exit code."""
        if self._is_interrupted:
            return 128 + signal.SIGINT
        if not command:
            return 0
        try:
            self._program = await processes.start(
                ["/bin/sh", "-c", command], self._hear, takes_input=step == "exec", cwd=processes.home_folder()
            )
        except OSError as error:
            self._hear("stderr", f"The command cannot be started: {error}\n")
            return _NOT_FOUND
        return await self._program.wait()

    def interrupt(self) -> None:
        """Send SIGINT, and SIGKILL after 10 s to a program that still runs."""
        self._is_interrupted = True
        if self._program is not None:
            self._program.signal(signal.SIGINT)
            asyncio.get_running_loop().call_later(_PATIENCE, self._end, self._program)

    def kill(self) -> None:
        """Kill the current program; later steps are not run."""
        self._is_interrupted = True
        if self._program is not None:
            self._program.kill()

    def answer(self, text: str) -> None:
        """Write a line to the command's standard input."""
        if self._program is not None:
            self._program.write(text if text.endswith("\n") else text + "\n")

    def _end(self, program: processes.Program) -> None:
        if program.is_alive:
            program.kill()


def steps_of(code: str, options: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the steps with their commands. ``*`` means the default command for the files in the home folder."""
    clean, build, command = (str(options.get(name) or "") for name in ("clean", "build", "exec"))
    yield "clean", _usual_clean() if clean == _USUAL else clean
    yield "build", _usual_build() if build == _USUAL else build
    yield "exec", _usual_exec() if command == _USUAL else command or code


def _usual_clean() -> str:
    return "make clean" if _has("Makefile") else ""


def _usual_build() -> str:
    if _has("Makefile"):
        return "make"
    return "python3 -m pip install --user ." if _has("setup.py") or _has("pyproject.toml") else ""


def _usual_exec() -> str:
    for name, command in (("main.py", "python3 main.py"), ("main.sh", "sh main.sh"), ("main", "./main")):
        if _has(name):
            return command
    text = "The home folder has no main.py, main.sh or main: name the command in options.exec."
    return f"echo '{text}' >&2; exit 127"


def _has(name: str) -> bool:
    return Path(processes.home_folder(), name).is_file()
