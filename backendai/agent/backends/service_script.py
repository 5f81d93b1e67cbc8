"""How the program of a service is started in a kernel: once, instead of an earlier one, with its words in a file."""

from __future__ import annotations

from backendai.agent.service_host import ARGUMENTS

MARK = "BACKENDAI_APP"

# The program of an earlier launch that does not answer goes first. It is ours only if it carries the mark that it was
# started with: process ids are used again.
LAUNCH = rf"""
file=$BACKENDAI_APP_FOLDER/.app-$BACKENDAI_APP
ours() {{ grep -q "BACKENDAI_APP=$BACKENDAI_APP" "/proc/$1/environ" 2>/dev/null; }}
if read -r pid 2>/dev/null <"$file.pid" && [ "$pid" != $$ ] && ours "$pid"; then
  kill "$pid"; for try in 1 2 3 4 5; do ours "$pid" || break; sleep 1; done
  ours "$pid" && kill -KILL "$pid"
fi
echo $$ >"$file.pid"
printf %s "${ARGUMENTS}" >"$file.arguments.log"
exec "$@" >"$file.log" 2>&1 </dev/null
""".strip()
