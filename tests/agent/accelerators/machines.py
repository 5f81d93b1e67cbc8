"""Machines with GPUs: real ones, and such as a fake library makes up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.patience import patient

ROOT = Path(__file__).resolve().parents[3]
SOURCE = Path(__file__).with_name("fakenvml.c")
LIBRARY = "libnvidia-ml.so.1"


@dataclass(frozen=True)
class Gpu:
    """What a test knows of a GPU without asking the code under test."""

    uuid: str
    model: str
    mib: int


class Observer:
    """The accelerators of an agent on such a machine, in a process of their own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, do: str, **more: Any) -> Any:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps({"do": do, **more}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, self._process.stderr.read() if self._process.stderr else ""
        return json.loads(line)

    def look(self, **kernels: str) -> Any:
        return self.ask("look", kernels=kernels)


class GpuMachine:
    """A real machine: what is there is what nvidia-smi says."""

    environ: dict[str, str] = {}

    @property
    def gpus(self) -> list[Gpu]:
        query = ["nvidia-smi", "--query-gpu=uuid,name,memory.total", "--format=csv,noheader,nounits"]
        told = subprocess.run(query, capture_output=True, text=True, check=True).stdout
        rows = [[word.strip() for word in line.split(",")] for line in told.strip().splitlines()]
        return [Gpu(uuid, model, int(mib)) for uuid, model, mib in rows]

    @contextmanager
    def observed(self, **told: Any) -> Iterator[Observer]:
        """Run an observer; ``told`` are its settings."""
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.agent.accelerators.observer", json.dumps(told)],
            cwd=ROOT,
            env={**os.environ, **self.environ},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with process:
            try:
                yield Observer(process)
            finally:
                assert process.stdin
                process.stdin.close()
                process.wait(patient(20))


class FakeMachine(GpuMachine):
    """A made-up machine; ``say`` changes it under whatever runs."""

    def __init__(self, folder: Path, libraries: Path, *gpus: Gpu) -> None:
        self._state, self._gpus = folder / "machine", list(gpus)
        self.environ = {"LD_LIBRARY_PATH": str(libraries), "FAKE_NVML": str(self._state)}
        self.say()

    @property
    def gpus(self) -> list[Gpu]:
        return self._gpus

    def say(self, *more: str, errors: dict[int, int] | None = None, util: int = 0, used: int = 0) -> None:
        """Write the whole state anew: the GPUs, how busy they are, and lines for the rest."""
        lines = [
            f"gpu {gpu.uuid} {gpu.mib} {used} {util} {(errors or {}).get(number, 0)} {gpu.model}"
            for number, gpu in enumerate(self._gpus)
        ]
        fresh = self._state.with_suffix(".new")
        fresh.write_text("\n".join([*lines, *more, ""]))
        fresh.replace(self._state)


def build_library(folder: Path, *options: str) -> Path:
    """Return the folder with the fake library in it."""
    folder.mkdir()
    named = ["-shared", "-fPIC", "-O1", f"-Wl,-soname,{LIBRARY}", "-o", str(folder / LIBRARY)]
    subprocess.run(["gcc", *named, *options, str(SOURCE)], check=True)
    return folder


def make_gpus(count: int, model: str = "NVIDIA H200", mib: int = 143_771) -> list[Gpu]:
    """Return GPUs with ids like real ones."""
    return [Gpu(f"GPU-{number:08x}-89ab-cdef-0123-456789abcdef", model, mib) for number in range(count)]
