"""Run in a session: what jupyter_client does by itself. Prints one line of JSON. Needs ipykernel."""

import json
import sys
import time

from jupyter_client import KernelManager


def run(client, code):
    """Run code; returns how many lines were received when both the reply and idle have come."""
    asked, lines, is_idle = client.execute(code), 0, False
    while not is_idle:
        message = client.get_iopub_msg(timeout=300)
        if message["parent_header"].get("msg_id") != asked:
            continue
        if message["msg_type"] == "stream":
            lines += message["content"]["text"].count("\n")
        is_idle = message["msg_type"] == "status" and message["content"]["execution_state"] == "idle"
    while client.get_shell_msg(timeout=60)["parent_header"].get("msg_id") != asked:
        pass
    return lines


def main():
    """``short N``, ``lines N`` or ``start 1``."""
    what, count = sys.argv[1], int(sys.argv[2])
    started_at = time.perf_counter()
    manager = KernelManager()
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    run(client, "1+1")
    if what == "start":
        print(json.dumps({"seconds": time.perf_counter() - started_at}))
    elif what == "short":
        taken = []
        for _ in range(count):
            started_at = time.perf_counter()
            run(client, "1+1")
            taken.append(time.perf_counter() - started_at)
        print(json.dumps({"seconds": taken}))
    else:
        started_at = time.perf_counter()
        got = run(client, f"for number in range({count}): print('line', number, flush=True)")
        print(json.dumps({"seconds": time.perf_counter() - started_at, "lost": count - got}))
    client.stop_channels()
    manager.shutdown_kernel(now=True)


main()
