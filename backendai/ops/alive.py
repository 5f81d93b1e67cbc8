"""Checks whether a process of the platform still works, for health checks of containers:

python -m backendai.ops.alive url http://127.0.0.1:8080/healthz
python -m backendai.ops.alive ssh 127.0.0.1:2200
python -m backendai.ops.alive beat
python -m backendai.ops.alive agent

Prints the problem and exits with 1 if the process is stuck. Does not load Django, as it runs every few seconds.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import sys
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

from backendai.agent.settings.config import read_settings
from backendai.agent.settings.credentials import load_address
from backendai.base.core.errors import BackendAIError
from backendai.base.paths.installation import data_folder
from backendai.base.process.listeners import in_url, reached_at

BEAT_MARK = "beat.alive"
_BEAT_SECONDS = 15.0  # it ticks every two
_SYNC_SECONDS = 60.0  # then the portal calls the agent lost
_PATIENCE = 5.0
_NO_CLIENT = b"PROXY UNKNOWN\r\n"


def main(arguments: Sequence[str]) -> int:
    """Check the part of the platform that the arguments name; return the exit code (1: it is stuck)."""
    parser = argparse.ArgumentParser(
        prog="python -m backendai.ops.alive", description="Check a process of the platform."
    )
    parts = parser.add_subparsers(dest="part", required=True)
    parts.add_parser("url", help="a process that answers HTTP at the address").add_argument("address")
    parts.add_parser("ssh", help="the SSH gate at the address").add_argument("address")
    parts.add_parser("beat", help="Celery beat, the clock of the control passes")
    parts.add_parser("agent", help="the agent of this machine")
    options = parser.parse_args(arguments)
    looks = {"url": lambda: _url(options.address), "ssh": lambda: _ssh(options.address), "beat": _beat, "agent": _agent}
    if fault := looks[options.part]():
        print(fault, file=sys.stderr)  # noqa: T201
    return int(bool(fault))


def _url(address: str) -> str:
    try:
        status, body = _get(address)
    except (OSError, http.client.HTTPException) as error:
        return f"{address} does not answer: {error}"
    return "" if status == http.client.OK else f"{address} answers {status}: {body.decode(errors='replace')[:200]}"


def _ssh(address: str) -> str:
    host, _, port = address.rpartition(":")
    try:
        is_behind_proxy = bool(os.environ.get("BACKENDAI_SSH_PROXIES"))
        with connect_to_gate(host, int(port), says_unknown=is_behind_proxy, seconds=_PATIENCE) as connection:
            said = connection.recv(64)
    except OSError as error:
        return f"{address} does not answer: {error}"
    return "" if said.startswith(b"SSH-2.0-") else f"{address} answers no SSH"


def connect_to_gate(host: str, port: int, *, says_unknown: bool, seconds: float) -> socket.socket:
    """Return a blocking connection to an SSH gate. ``says_unknown``: the gate waits for the PROXY protocol, and the
    check has no client to name. ``seconds``: timeout of the connection and its calls. Raises OSError."""
    connection = socket.create_connection((host, port), timeout=seconds)
    if says_unknown:
        try:
            connection.sendall(_NO_CLIENT)
        except OSError:
            connection.close()
            raise
    return connection


def _beat() -> str:
    mark = data_folder(os.environ) / BEAT_MARK
    try:
        silent = time.time() - mark.stat().st_mtime
    except FileNotFoundError:
        return "beat has not ticked yet"
    return f"beat has not ticked for {silent:.0f} s" if silent > _BEAT_SECONDS else ""


def _agent() -> str:
    try:
        data = read_settings(os.environ, {}).data
    except BackendAIError as error:
        return error.message
    host, port = load_address(data)
    if not port:
        return "the agent has not opened its gateway yet"
    address = f"http://{in_url(reached_at(host))}:{port}/healthz"
    if fault := _url(address):
        return fault
    silent = json.loads(_get(address)[1])["seconds_since_sync"]
    if silent is None:
        return "the agent has not reached the portal yet"
    return f"the agent has not reached the portal for {silent:.0f} s" if silent > _SYNC_SECONDS else ""


def _get(address: str) -> tuple[int, bytes]:
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_PATIENCE)
    try:
        connection.request("GET", parts.path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
