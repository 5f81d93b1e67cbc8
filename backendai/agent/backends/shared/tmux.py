"""Settings and commands of tmux for terminals."""

from __future__ import annotations

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
