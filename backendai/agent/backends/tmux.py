"""How tmux keeps the shells of terminals."""

from __future__ import annotations

# With one window the status line would only take a row away; from the second one it shows which there are. What the
# owner's .tmux.conf sets for all of tmux counts again when one window is left.
_LINE = "if -F '#{==:#{session_windows},1}' 'set -u status' 'set status on'"
STATUS_LINES = (
    "set -g status off",
    "set -g status-left ''",
    "set -g status-right ''",
    f'set-hook -g window-linked "{_LINE}"',
    f'set-hook -g window-unlinked "{_LINE}"',
)
