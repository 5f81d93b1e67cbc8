"""Terminals of kernels: the scripts that open and end a shell or search in tmux, and the clients of one agent.

No engine ends a command when its client disconnects. So the script saves its process id in the container before it
executes tmux or a shell, and a second command hangs up exactly that process.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Sequence
from uuid import UUID

from backendai.agent.backends.base import SH, TOOLS, BackendError, KernelGone
from backendai.agent.backends.shared.home import WAIT
from backendai.base.paths.mount_targets import HOME as WORKDIR

# The status line lists windows, so it is hidden while there is only one. Then the settings in the
# user's .tmux.conf apply again.
_LINE = "if -F '#{==:#{session_windows},1}' 'set -u status' 'set status on'"
STATUS_LINES = (
    "set -g status off",
    "set -g status-left ''",
    "set -g status-right ''",
    f'set-hook -g window-linked "{_LINE}"',
    f'set-hook -g window-unlinked "{_LINE}"',
)

# Searches the history of session $1. $2: "find" searches upwards from the end for the text $3, then
# "previous" and "next" continue; "end" leaves copy mode. An argument that ends with a semicolon would end the
# command. After a change of direction the first match is the same place, as the cursor moves to the text's other
# end, except with vi keys.
FIND = r"""
socket=${TMPDIR:-/tmp}/.tmux.sock session="=$1:" does=$2 text=$3
ask() { if [ -S "$socket" ]; then tmux -S "$socket" "$@"; else tmux "$@"; fi; }
act() { ask send-keys -t "$session" -X "$@"; }
go_on() {
  before=$(ask show-options -qv -t "$session" @backendai-find)
  ask set-option -q -t "$session" @backendai-find "$does"
  [ "$before" = "$does" ] || [ "$(ask display-message -p -t "$session" '#{mode-keys}')" = vi ] || act "$1"
  act "$1"
}
case $text in *\;) text="${text%?}\;";; esac
case $does in
find)
  ask copy-mode -t "$session" && act history-bottom
  ask set-option -q -t "$session" @backendai-find previous
  act search-backward-text "$text" || act search-backward "$text";;
previous) go_on search-again;;
next) go_on search-reverse;;
end) act cancel;;
esac >/dev/null 2>&1
""".strip()

MARK = "BACKENDAI_TERMINAL"

OPEN = r"""
echo $$ >"/tmp/.term-$BACKENDAI_TERMINAL"
case $1 in view-*) exec tmux -u attach-session -r -t "=${1#view-}";; esac
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


def shell_command(name: str) -> list[str]:
    """Return the command that attaches to the shell session ``name``; after ``view-`` without typing, and without
    starting it or changing its size. Its environment needs ``MARK``."""
    return [SH, "-c", WAIT, "wait", WORKDIR, SH, "-c", OPEN, "terminal", tmux_name(name), WORKDIR, SETTINGS]


class TerminalClients(abc.ABC):
    """The clients of one agent's terminals, each with a mark of its own."""

    def __init__(self) -> None:
        self._open: dict[str, UUID] = {}
        self._clean: set[UUID] = set()

    def started(self, kernel_id: UUID) -> None:
        """Record that this agent started a kernel, so it has no clients of an earlier agent."""
        self._clean.add(kernel_id)

    def sweep(self, running: set[UUID]) -> None:
        """End the clients that a killed agent left in these kernels."""
        self._clean &= running
        for kernel_id in running - self._clean:
            ours = [mark for mark, kernel in list(self._open.items()) if kernel == kernel_id]
            if self._run(kernel_id, CLOSE_ALL_BUT, ours):
                self._clean.add(kernel_id)

    def _hang_up(self, mark: str) -> None:
        kernel_id = self._open.pop(mark, None)
        if kernel_id is not None and not self._run(kernel_id, CLOSE_ONE, [mark]):
            self._clean.discard(kernel_id)  # the next sweep retries

    def _run(self, kernel_id: UUID, script: str, arguments: Sequence[str]) -> bool:
        """Run a script in the kernel; returns whether it was started, or is unnecessary."""
        try:
            self._execute(kernel_id, [SH, "-c", script, "hang-up", *arguments])
        except KernelGone:
            return True
        except BackendError:
            return False
        return True

    @abc.abstractmethod
    def _execute(self, kernel_id: UUID, command: list[str]) -> None:
        """Run a command in the kernel. Raises KernelGone, BackendError."""
