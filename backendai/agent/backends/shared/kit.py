"""The kit: this machine's Python, rsync, scp, tmux and SFTP server with their libraries, for images without them.

Containers mount the folder read-only. The kit's programs run under the kit's own loader and need only a shell of the
image. The kit is built when a kernel first needs it, and rebuilt when its sources change.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

from backendai.agent.backends.base import SH
from backendai.agent.backends.guest_host import INSIDE as GUEST_INSIDE
from backendai.agent.backends.guest_host import PROGRAM
from backendai.agent.backends.shared.home import WAIT
from backendai.agent.backends.shared.trees import remove_tree
from backendai.base.paths.mount_targets import HOME as WORKDIR

logger = logging.getLogger(__name__)

INSIDE = "/run/backendai-kit"
_CURRENT, _FORMAT = "current", 2
_SECONDS = 60.0
_TOOLS = ("rsync", "scp", "tmux")
_FILE_SERVERS = ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server")
_TERMINFO = ("/etc/terminfo", "/lib/terminfo", "/usr/lib/terminfo", "/usr/share/terminfo")
# Terminals of users' clients, and tmux's own: images without tmux often lack both descriptions.
_TERMINALS = ("xterm", "xterm-256color", "screen", "screen-256color", "tmux", "tmux-256color", "linux", "vt100", "dumb")
_LINKED = re.compile(r"^\s*(?:\S+ => )?(/\S+) \(0x", re.MULTILINE)
# Modules that the guest does not import, or that need large libraries.
_LEFT_OUT = (
    "site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip",
    "lib2to3", "pydoc_data", "distutils", "venv", "config-*", "_tkinter*", "_test*", "_ctypes_test*", "_xx*", "xx*",
    "_sqlite3*", "_curses*", "_dbm*", "_gdbm*", "readline*", "nis*", "_ssl*", "_hashlib*", "_lzma*", "_bz2*",
)  # fmt: skip
_HERE = f"{INSIDE}/{_CURRENT}"
_LOCALE = Path("/usr/lib/locale/C.utf8/LC_CTYPE")  # tmux needs UTF-8, for which the C library reads this file
# Removes from programs of the image a variable that only our tmux needs, then reads users' own settings.
_TMUX_CONF = """\
set-environment -gr LOCPATH
source-file -q /etc/tmux.conf
source-file -q ~/.tmux.conf
source-file -q ~/.config/tmux/tmux.conf
"""
_TMUX_START = f"""\
export TERMINFO_DIRS="${{TERMINFO_DIRS:-/etc/terminfo:/usr/share/terminfo:{_HERE}/terminfo}}"
export LOCPATH={_HERE}/locale
set -- -u -f {_HERE}/tmux.conf "$@"
"""


_RUNTIME = "ai.backend.runtime-path"
# Uses the image's interpreter, else the first Python found, else the kit's.
_LAUNCH_GUEST = f"""
for python in "$1" python3 python; do
  case "$python" in *python*) ;; *) continue ;; esac
  command -v "$python" >/dev/null 2>&1 && "$python" -I -S -c "$2" || continue
  exec "$python" -I -S {GUEST_INSIDE}/{PROGRAM} serve {GUEST_INSIDE}
done
exec {_HERE}/python3 -I -S {GUEST_INSIDE}/{PROGRAM} serve {GUEST_INSIDE}
""".strip()
IS_NEW_ENOUGH = "import sys; sys.exit(sys.version_info < (3, 8))"


def guest_command(labels: Mapping[str, str]) -> list[str]:
    """Return the command that starts the guest agent in a kernel of an image with these labels."""
    launch = [SH, "-c", _LAUNCH_GUEST, "guest", labels.get(_RUNTIME, ""), IS_NEW_ENOUGH]
    return [SH, "-c", WAIT, "wait", WORKDIR, *launch]


class Kit:
    """The kit of one agent, below ``folder``. Kernels mount ``folder`` itself, so that a rebuilt kit reaches them
    too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._making, self._has_failed = threading.Lock(), False

    def prepare(self) -> Path:
        """Return the folder that containers mount; creates it if needed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        return self.folder

    def ensure(self) -> bool:
        """Return whether the kit exists; builds it if needed (1 to 2 s). A failed build is logged once and not
        repeated."""
        with self._making:
            if self._has_failed:
                return False
            try:
                self._make()
            except (OSError, subprocess.SubprocessError) as error:
                logger.warning("the kit for images without Python cannot be made: %s", error)
                self._has_failed = True
            return not self._has_failed

    def _make(self) -> None:
        programs = _programs()
        version = _version_of(programs.values())
        current = self.prepare() / _CURRENT
        if current.is_symlink() and str(current.readlink()) == version:
            return
        draft = self.folder / f".{version}"
        for left in self.folder.iterdir():  # from an interrupted build or an earlier version
            if left != current and (not current.is_symlink() or left.name != str(current.readlink())):
                remove_tree(left)
        _fill(draft, programs)
        draft.rename(self.folder / version)
        link = self.folder / ".link"
        link.symlink_to(version)
        link.replace(current)


def _programs() -> dict[str, Path]:
    """Return the paths of the programs by their names in the kit: Python, and the others that this machine has."""
    server = next((path for path in _FILE_SERVERS if os.access(path, os.X_OK)), None)
    found = {name: shutil.which(name) for name in _TOOLS} | {"sftp-server": server}
    python = Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")
    others = {name: Path(path).resolve() for name, path in found.items() if path}
    return {"python3": (python if python.exists() else Path(sys.executable)).resolve(), **others}


def _version_of(programs: Iterable[Path]) -> str:
    stats = [(str(path), path.stat().st_size, int(path.stat().st_mtime)) for path in programs]
    return hashlib.sha256(repr((_FORMAT, sys.version, stats)).encode()).hexdigest()[:16]


def _fill(draft: Path, programs: dict[str, Path]) -> None:
    library = Path(os.__file__).parent
    target = draft / sys.platlibdir / library.name  # Python searches this path relative to its program
    shutil.copytree(library, target, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    for name in ("libraries", "programs", "bin"):
        (draft / name).mkdir()
    extensions = [str(path) for path in (target / "lib-dynload").glob("*.so")]
    loader = ""
    for linked in _linked([*map(str, programs.values()), *extensions]):
        name = Path(linked).name
        loader = name if name.startswith("ld-") else loader
        shutil.copy2(linked, draft / "libraries" / name)
    if not loader:
        raise OSError("the loader of programs is not found")
    for name, path in programs.items():
        shutil.copy2(path, draft / "programs" / name)
        (draft / "programs" / name).chmod(0o755)
        _write_starter(draft / ("bin" if name in _TOOLS else ".") / name, name, loader)
    _prepare_tmux(draft)
    draft.chmod(0o755)


def _prepare_tmux(draft: Path) -> None:
    """Write tmux's settings, and copy this machine's terminal descriptions and UTF-8 locale: tmux does not start
    without them."""
    (draft / "tmux.conf").write_text(_TMUX_CONF)
    if _LOCALE.exists():
        (draft / "locale" / "C.utf8").mkdir(parents=True)
        shutil.copy2(_LOCALE, draft / "locale" / "C.utf8" / _LOCALE.name)
    target = draft / "terminfo"
    for name in _TERMINALS:
        found = next((path for place in _TERMINFO if (path := Path(place, name[0], name)).exists()), None)
        if found is not None:
            (target / name[0]).mkdir(parents=True, exist_ok=True)
            shutil.copy2(found, target / name[0] / name)


def _write_starter(path: Path, name: str, loader: str) -> None:
    start = f'exec {_HERE}/libraries/{loader} --library-path {_HERE}/libraries {_HERE}/programs/{name} "$@"'
    path.write_text(f"#!/bin/sh\n{_TMUX_START if name == 'tmux' else ''}{start}\n")
    path.chmod(0o755)


def _linked(files: list[str]) -> list[str]:
    """Return the libraries and the loader that these files need. Raises OSError."""
    told = subprocess.run(["ldd", *files], capture_output=True, text=True, timeout=_SECONDS, check=False)
    if not told.stdout:
        raise OSError(f"ldd says nothing: {told.stderr.strip()[:200]}")
    return sorted(set(_LINKED.findall(told.stdout)))
