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

# Looks through all that tmux has kept of the session $1. $2: "find" goes upwards from the end to the text $3, then
# "previous" and "next" go on from there; "end" leaves copy mode. An argument that ends with a semicolon would end the
# command. A search that turns round finds the same place first, because the cursor moves to the other end of the text;
# with the keys of vi it does not.
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
