"""Fills a kernel's new home: the user's files for every session, and the bootstrap script.

Files are written before any program of the kernel runs, below open descriptors and without following links. The script
runs as the kernel's user before the main program: its output goes to the kernel's log, its failure has no effect, and
it is stopped after ``BOOTSTRAP_SECONDS``. Terminals wait for it. Neither appears in arguments or variables.

A stored home is unpacked first. Its own files win, except over those that the platform renews at each start; its links
are replaced where the platform needs a directory. The bootstrap script does not run again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from backendai.agent.backends.base import SH, TOOLS
from backendai.agent.backends.shared.cluster_files import ClusterAccess, access_files, with_ssh
from backendai.base.core.slots import Slots
from backendai.base.paths.home_paths import BOOTSTRAP, BOOTSTRAP_PENDING, is_reserved
from backendai.base.paths.mount_targets import below_home
from backendai.base.wire.messages import HomeFile, KernelSpec

BOOTSTRAP_SECONDS = 300
_PRIVATE = ".ssh"

# The main process of a kernel without a program. Argument: the first line of its log.
_STAY = f'printf "%s\\n" "$1"; {TOOLS}; exec sleep infinity'

# Arguments: the home folder, the time limit in seconds, and the command to execute.
_RUN = rf"""
home=$1 seconds=$2 theirs=$PATH; shift 2
if [ -f "$home/.bootstrap.pending" ]; then
  {TOOLS}
  apart=$(command -v setsid)
  (PATH=$theirs; exec $apart "$home/.bootstrap.sh") </dev/null &
  job=$!
  (
    left=$seconds
    while [ "$left" -gt 0 ]; do sleep 1 >/dev/null 2>&1; left=$((left - 1)); done
    echo "The bootstrap script is stopped: it has run for $seconds seconds."
    kill -TERM "-$job" 2>/dev/null || kill -TERM "$job"
    sleep 2 >/dev/null 2>&1
    kill -KILL "-$job" 2>/dev/null || kill -KILL "$job"
  ) &
  clock=$!
  wait "$job"; code=$?
  kill "$clock" 2>/dev/null
  wait "$clock" 2>/dev/null
  rm -f "$home/.bootstrap.pending"
  [ "$code" = 0 ] || echo "The bootstrap script failed with exit code $code; the session goes on."
  PATH=$theirs
fi
exec "$@"
""".strip()

# Arguments: the home folder, and the terminal's command.
WAIT = rf"""
home=$1; shift
if [ -f "$home/.bootstrap.pending" ]; then
  echo "Your bootstrap script runs; the terminal opens when it has ended. Ctrl-C opens it now."
  trap 'impatient=1' INT
  while [ -z "$impatient" ] && [ -f "$home/.bootstrap.pending" ]; do {TOOLS} sleep 1; done
  trap - INT
fi
exec "$@"
""".strip()


def fill_home(
    home: Path,
    spec: KernelSpec,
    *,
    owner: int | None,
    open_to_all: bool = False,
    access: ClusterAccess | None = None,
    unpack: Callable[[Path], None] = lambda _: None,
) -> None:
    """Write the spec's files into a new home folder, and create the mount points in it.

    ``owner``: the user and group of the files; None: the current user. ``open_to_all``: gives everybody the owner's
    rights, if the owner cannot be set. ``access``: paths of the cluster's files. ``unpack`` unpacks the spec's stored
    home, if there is one. Raises OSError, StartFailed.
    """
    is_restored = spec.home is not None
    unpack(home)
    root = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for file in home_files(spec, access):
            is_ours = file not in spec.files or is_reserved(file.path)
            there = (FileExistsError, NotADirectoryError) if is_restored and not is_ours else ()
            with contextlib.suppress(*there):
                _write(root, file, owner, open_to_all, renews=is_restored and is_ours)
        for mount in spec.mounts:
            if inside := below_home(mount.target):
                _make_folders(root, inside.split("/"), owner, open_to_all, renews=is_restored)
    finally:
        os.close(root)


def after_bootstrap(spec: KernelSpec, home: str, command: list[str]) -> list[str]:
    """Return a command that runs the spec's bootstrap script, if any, and then ``command``."""
    if not spec.bootstrap:
        return command
    return [SH, "-c", _RUN, "bootstrap", home, str(BOOTSTRAP_SECONDS), *command]


def main_command(spec: KernelSpec, home: str, access: ClusterAccess | None = None, *, shell: str = SH) -> list[str]:
    """Return the command of the main process: the user's, or a banner followed by an endless sleep. The start of
    ``sshd`` and the bootstrap script precede it where the kernel has them. ``home``: in the kernel."""
    command = [shell, "-c", spec.command]
    if not spec.runs_program:
        slots = Slots.parse(spec.slots).describe()
        banner = f"Session {spec.session_name} on {spec.hostname}: {spec.image}, {slots}"
        command = [SH, "-c", _STAY, "backendai", banner]
    return after_bootstrap(spec, home, with_ssh(spec, access, command) if access else command)


def home_files(spec: KernelSpec, access: ClusterAccess | None = None) -> Iterable[HomeFile]:
    """Yield the files of the kernel's new home, including the bootstrap script."""
    yield from access_files(spec, access) if access else spec.files
    if spec.bootstrap and spec.home is None:
        yield HomeFile(path=BOOTSTRAP, mode=0o700, content=spec.bootstrap)
        yield HomeFile(path=BOOTSTRAP_PENDING, mode=0o600)


def _write(root: int, file: HomeFile, owner: int | None, open_to_all: bool, *, renews: bool) -> None:
    """Write a file. ``renews``: replaces files and links, which otherwise raise FileExistsError, NotADirectoryError."""
    *folders, name = file.path.split("/")
    with contextlib.ExitStack() as leaving:
        folder = root
        for part in folders:
            folder = _folder(folder, part, owner, open_to_all, renews=renews)
            leaving.callback(os.close, folder)
        if renews:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(name, flags, 0o600, dir_fd=folder), "wb") as stream:
            stream.write(file.content.encode())
            stream.flush()
            _give(stream.fileno(), file.mode, owner, open_to_all)


def _make_folders(root: int, parts: Iterable[str], owner: int | None, open_to_all: bool, *, renews: bool) -> None:
    """Create the directory as a mount point; the engine would create it as root."""
    with contextlib.ExitStack() as leaving:
        folder = root
        for part in parts:
            folder = _folder(folder, part, owner, open_to_all, renews=renews)
            leaving.callback(os.close, folder)


def _folder(parent: int, name: str, owner: int | None, open_to_all: bool, *, renews: bool) -> int:
    made = False
    if renews:
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):  # Linux unlinks no directory
            os.unlink(name, dir_fd=parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
        made = True
    found = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    if made:
        _give(found, 0o700 if name == _PRIVATE else 0o755, owner, open_to_all)
    return found


def _give(file: int, mode: int, owner: int | None, open_to_all: bool) -> None:
    if owner is not None:
        os.fchown(file, owner, owner)
    rights = mode >> 6
    os.fchmod(file, mode | rights << 3 | rights if open_to_all else mode)
