"""The Python environment of sessions that are native processes: Jupyter and Matplotlib from a package index.

Versions lie beside each other in one folder; the link ``python`` names the newest whole one, so that a rebuild takes
nothing from sessions that run. ``python.json`` tells agents how far a build is, or why there is none.
"""

from __future__ import annotations

import argparse
import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from images.builder.command import clean_up_on_sigterm, open_log
from images.builder.engine import run_command
from images.builder.outcome import explain_failure
from images.builder.progress import Failure, Phase, Progress

NAME = "python"
COMPLETE = ".complete"
_HERE = Path(__file__).resolve().parents[1]
_SETTINGS = ("page_config.json", "jupyter_server_config.py")
_SOURCES = (
    _HERE / "native",
    *(_HERE / "python" / name for name in ("requirements.txt", *_SETTINGS)),
    Path(__file__).resolve(),
)
_NEEDED_BYTES = 1024**3
_KEPT = 2  # the newest, and the one before it: sessions that run may use it
# What making the environment takes, and how many lines pip writes before it installs: it then writes none.
_PHASES = [
    Phase("environment", 0.1, 1),
    Phase("packages", 0.3, 300),
    Phase("installation", 0.5, 1),
    Phase("settings", 0.1, 1),  # and what pip does after the last package
]
# Jupyter does not use them: jsonschema needs them for internationalized addresses only. The parser that they build on
# import takes two thirds of the start of JupyterLab.
_LEFT_OUT = ("rfc3987-syntax", "lark")
_INSTALLS = "Installing collected packages:"
_LOOK_SECONDS = 0.5
# Finds its interpreter beside itself, wherever the folder is seen.
_RELOCATABLE = b'#!/bin/sh\n\'\'\'exec\' "$(dirname -- "$(realpath -- "$0")")/python" "$0" "$@"\n\' \'\'\'\n'


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    options = _parse(arguments)
    clean_up_on_sigterm()
    os.umask(0o022)  # every session reads it
    folder = Path(options.into).resolve()
    if options.check:
        return 0 if is_current(folder) else 1
    progress = _ToldProgress(folder / f"{NAME}.json", machine=options.progress)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open_log(options.log) as log, _alone(folder):
            _build(folder, progress, log, options)
    except Failure as failure:
        progress.failed(failure)
    except KeyboardInterrupt:
        progress.failed(Failure("stopped", "The build was stopped.", "Retry the build."))
    except OSError as error:
        code = "disk-full" if error.errno == errno.ENOSPC else "build-failed"
        progress.failed(Failure(code, f"The environment cannot be made: {error}", "Correct the cause, then retry."))
    else:
        return 0
    return 1


def version() -> str:
    """Return what the environment is made of, as a short hash: packages, services and this Python."""
    digest = hashlib.sha256(sys.version.encode() + sys.base_prefix.encode())
    for source in _SOURCES:
        for path in sorted(source.rglob("*")) if source.is_dir() else [source]:
            if path.is_file():
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def is_current(folder: Path) -> bool:
    """Return whether the environment in the folder is whole and of this version."""
    return (folder / NAME).resolve().name == f"{NAME}-{version()}" and (folder / NAME / COMPLETE).exists()


class _ToldProgress(Progress):
    """Progress that agents can read in a file, too."""

    def __init__(self, state: Path, *, machine: bool) -> None:
        super().__init__(sys.stdout, machine=machine)
        self._state, self._began_at = state, time.time()

    def _write(self, line: str) -> None:
        super()._write(line)
        self._note({"state": "building", "percent": int(self._share * 100), "began_at": self._began_at})

    def done(self, sentence: str) -> None:
        super().done(sentence)
        self._state.unlink(missing_ok=True)

    def failed(self, failure: Failure) -> None:
        super().failed(failure)
        self._note({"state": "failed", "message": failure.sentence})

    def _note(self, told: dict[str, object]) -> None:
        draft = self._state.with_suffix(".draft")
        try:
            draft.write_text(json.dumps(told))
            draft.replace(self._state)
        except OSError:
            return  # the disk is full: the page of images says it


def _build(folder: Path, progress: Progress, log: TextIO, options: argparse.Namespace) -> None:
    if is_current(folder) and not options.force:
        progress.done("The environment is up to date.")
        return
    free = shutil.disk_usage(folder).free
    if free < _NEEDED_BYTES:
        sentence = f"{folder} has {free / 1024**3:.1f} GB free; the environment needs 1 GB."
        raise Failure("disk-full", sentence, "Free space on that disk, then retry the build.")
    for path in folder.glob(f"{NAME}-*"):
        if not (path / COMPLETE).exists() or path.name == f"{NAME}-{version()}":
            _remove(path)
    progress.plan(_PHASES)
    progress.begin("environment", "making a Python environment")
    made = folder / f"{NAME}-{version()}"
    _run([sys.executable, "-m", "venv", str(made)], lambda line: progress.count_line(), log, options)
    progress.begin("packages", "downloading Python packages")
    pip = [str(made / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    wanted = ["install", "--progress-bar", "off", "--requirement", str(_HERE / "native" / "requirements.txt")]
    with _Installation(made, progress) as installation:
        _run([*pip, *wanted], installation.hear, log, options)
    _run([*pip, "uninstall", "--yes", *_LEFT_OUT], lambda line: None, log, options)
    progress.begin("settings", "adding services and settings")
    _furnish(made)
    draft = folder / f".{NAME}.draft"
    draft.unlink(missing_ok=True)
    draft.symlink_to(made.name)
    draft.replace(folder / NAME)
    for old in sorted(folder.glob(f"{NAME}-*"), key=lambda path: path.stat().st_mtime)[:-_KEPT]:
        _remove(old)
    progress.done("The Python environment is ready.")


class _Installation:
    """Reports progress while pip works: by its lines, then by the packages that are there."""

    def __init__(self, made: Path, progress: Progress) -> None:
        self._made, self._progress = made, progress
        self._before = self._packages()
        self._ended = threading.Event()
        self._watch: threading.Thread | None = None

    def __enter__(self) -> _Installation:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._watch is not None:
            self._watch.join()

    def hear(self, line: str) -> None:
        """Take a line of pip. From the last one before it installs on, only the watch reports."""
        if self._watch is not None:
            return
        self._progress.count_line()
        if line.startswith(_INSTALLS):
            self._progress.begin("installation", "installing Python packages")
            self._watch = threading.Thread(target=self._count, args=(line.count(",") + 1,))
            self._watch.start()

    def _count(self, wanted: int) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            self._progress.reach((self._packages() - self._before) / wanted)

    def _packages(self) -> int:
        # pip writes this file last, when the package is compiled.
        return sum(1 for _ in self._made.glob("lib/python*/site-packages/*.dist-info/INSTALLER"))


def _run(command: Sequence[str], on_line: Callable[[str], None], log: TextIO, options: argparse.Namespace) -> None:
    status, tail = run_command(command, os.environ, log, on_line)
    if status != 0:
        raise explain_failure("Making the Python environment failed", tail, options.log)


def _furnish(made: Path) -> None:
    """Put services and settings in, and make it fit for being read at another path by people who cannot write there:
    what they install goes into their home."""
    shutil.copytree(_HERE / "native" / "service-defs", made / "service-defs")
    settings = made / "etc" / "jupyter"
    (settings / "labconfig").mkdir(parents=True, exist_ok=True)
    page, server = _SETTINGS
    shutil.copyfile(_HERE / "python" / page, settings / "labconfig" / page)
    shutil.copyfile(_HERE / "python" / server, settings / server)
    config = made / "pyvenv.cfg"
    told = config.read_text().replace("include-system-site-packages = false", "include-system-site-packages = true")
    config.write_text(told)
    for script in (made / "bin").iterdir():
        if script.is_file() and not script.is_symlink():
            first, _, rest = script.read_bytes().partition(b"\n")
            if first.startswith(b"#!") and b"python" in first:
                script.write_bytes(_RELOCATABLE + rest)
    for packages in made.glob("lib/python*/site-packages"):
        packages.chmod(0o555)
    (made / COMPLETE).touch()


def _remove(path: Path) -> None:
    for folder in [path, *(found for found in path.rglob("*") if found.is_dir() and not found.is_symlink())]:
        folder.chmod(folder.stat().st_mode | stat.S_IRWXU)
    shutil.rmtree(path)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="build-native", description="Make the Python environment of native sessions, unless it is up to date."
    )
    parser.add_argument("--into", metavar="FOLDER", required=True, help="where: as the agent's setting says")
    parser.add_argument("--progress", action="store_true", help="write lines for programs (see docs/images.md)")
    parser.add_argument("--check", action="store_true", help="make nothing; exit with 0 when it is up to date, else 1")
    parser.add_argument("--force", action="store_true", help="make it also when it is up to date")
    parser.add_argument("--log", metavar="FILE", help="append the full output to FILE instead of standard error")
    return parser.parse_args(arguments)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock of the folder; a second build waits."""
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)
