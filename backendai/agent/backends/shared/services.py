"""What services of kernels share: where an image defines them, and the scripts that start them and read output."""

from __future__ import annotations

from backendai.agent.backends.base import TOOLS
from backendai.agent.backends.service_host import ARGUMENTS

MARK = "BACKENDAI_APP"
TEMPORARY = {"BACKENDAI_APP_FOLDER": "/tmp"}  # noqa: S108 - of the kernel
LARGEST_DEFINITION = 64 * 2**10

# Prints the end of a service's output. Its user could create a named pipe there, on which tail would block for ever.
LOG = f'{TOOLS}; file=/tmp/.app-$0.log; [ ! -f "$file" ] || tail -c "$1" "$file" 2>/dev/null'

# Replaces an earlier program, and saves the arguments in a file. First ends the unresponsive program of an earlier
# launch. Its environment must contain the mark, as another process may have the same id now.
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


def definition_of(service: str) -> str:
    """Return the path, in the image, of the file that defines the service."""
    return f"/etc/backend.ai/service-defs/{service}.json"
