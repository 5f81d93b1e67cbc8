"""The script that starts a service's program in a kernel. It replaces an earlier program, and saves the arguments in a
file."""

from __future__ import annotations

from backendai.agent.backends.base import TOOLS
from backendai.agent.backends.service_host import ARGUMENTS

MARK = "BACKENDAI_APP"

# Prints the end of a service's output. Its user could create a named pipe there, on which tail would block for ever.
LOG = f'{TOOLS}; file=/tmp/.app-$0.log; [ ! -f "$file" ] || tail -c "$1" "$file" 2>/dev/null'

# First ends the unresponsive program of an earlier launch. Its environment must contain the mark, as another process
# may have the same id now.
LAUNCH = rf"""
file=$BACKENDAI_APP_FOLDER/.app-$BACKENDAI_APP
ours() {{ {TOOLS} grep -q "BACKENDAI_APP=$BACKENDAI_APP" "/proc/$1/environ" 2>/dev/null; }}
if read -r pid 2>/dev/null <"$file.pid" && [ "$pid" != $$ ] && ours "$pid"; then
  kill "$pid"; for try in 1 2 3 4 5; do ours "$pid" || break; {TOOLS} sleep 1; done
  ours "$pid" && kill -KILL "$pid"
fi
echo $$ >"$file.pid"
printf %s "${ARGUMENTS}" >"$file.arguments.log"
exec "$@" >"$file.log" 2>&1 </dev/null
""".strip()
