"""The shell scripts behind terminals: one that becomes the shell, and those that hang it up.

No engine ends a command when its client hangs up. So the shell notes its process id in the container before it becomes
tmux or a shell, and a second command hangs up exactly that process.
"""

from __future__ import annotations

import re

from backendai.agent.backends.tmux import STATUS_LINES

MARK = "BACKENDAI_TERMINAL"

OPEN = r"""
echo $$ >"/tmp/.term-$BACKENDAI_TERMINAL"
if command -v tmux >/dev/null 2>&1; then
  conf=/tmp/.backendai-tmux.conf
  printf '%s\n' "$3" "source-file -q $2/.tmux.conf" >"$conf"
  exec tmux -u -f "$conf" new-session -A -s "$1"
fi
command -v bash >/dev/null 2>&1 && exec bash -l
exec sh
""".strip()

SETTINGS = "\n".join(
    ("set -g history-limit 50000", "set -g mouse on", "set -g default-terminal screen-256color", *STATUS_LINES)
)

# A process is a client only if it carries the mark that it was started with: process ids are used again.
_HANG_UP = r"""
hang_up() {
  file=/tmp/.term-$1; read -r pid <"$file" || return; rm -f "$file"
  grep -q "BACKENDAI_TERMINAL=$1" "/proc/$pid/environ" 2>/dev/null || return
  kill -HUP "$pid"; sleep 1; kill -KILL "$pid"
}
""".strip()
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
    """Return a name for tmux, which gives dots and colons a meaning of their own."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name) or "main"
