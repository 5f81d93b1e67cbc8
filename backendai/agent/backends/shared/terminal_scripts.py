"""The shell scripts of terminals: one that turns into the shell, and others that end it.

No engine ends a command when its client disconnects. So the script saves its process id in the container before it
executes tmux or a shell, and a second command hangs up exactly that process.
"""

from __future__ import annotations

import re

from backendai.agent.backends.base import TOOLS
from backendai.agent.backends.shared.tmux import STATUS_LINES

MARK = "BACKENDAI_TERMINAL"

OPEN = r"""
echo $$ >"/tmp/.term-$BACKENDAI_TERMINAL"
if command -v tmux >/dev/null 2>&1; then
  conf=/tmp/.backendai-tmux.conf
  printf '%s\n' "$3" "source-file -q $2/.tmux.conf" >"$conf"
  exec tmux -u -f "$conf" new-session -A -s "$1"
fi
command -v bash >/dev/null 2>&1 && exec bash -l
exec /bin/sh
""".strip()

SETTINGS = "\n".join(
    ("set -g history-limit 50000", "set -g mouse on", "set -g default-terminal screen-256color", *STATUS_LINES)
)

# Checks the mark in the process's environment, as another process may have the same id now.
_HANG_UP = (
    TOOLS
    + r"""
hang_up() {
  file=/tmp/.term-$1; read -r pid <"$file" || return; rm -f "$file"
  grep -q "BACKENDAI_TERMINAL=$1" "/proc/$pid/environ" 2>/dev/null || return
  kill -HUP "$pid"; sleep 1; kill -KILL "$pid"
}
""".rstrip()
)
CLOSE_ONE = _HANG_UP + '\nhang_up "$1" 2>/dev/null'
CLOSE_ALL_BUT = (
    _HANG_UP
    + r"""
for file in /tmp/.term-*; do
  id=${file#/tmp/.term-}
  case " $* " in *" $id "*) ;; *) hang_up "$id" 2>/dev/null & ;; esac
done
wait
""".rstrip()
)


def tmux_name(name: str) -> str:
    """Return a name for tmux, without dots and colons, which tmux interprets."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name) or "main"
