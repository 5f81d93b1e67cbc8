"""Ways into a session: SSH, ports, apps, a local JupyterLab."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from bai.config import cache_folder, config_folder, write_private
from bai.names import find_session, noun_argument
from bai.sdk import api
from bai.sdk.call import Problem
from bai.sdk.nouns import Session
from bai.state import State, pass_state, tell

_NOTEBOOKS = ("jupyterlab", "jupyter")


@click.command(context_settings={"allow_interspersed_args": False})
@noun_argument("session")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@pass_state
def ssh(state: State, session: str, command: tuple[str, ...]) -> int:
    """Open a shell in a session, or run a command there; the exit code is its own."""
    found = find_session(state.portal, session, ended=False)
    return _run_ssh([*_ssh_words(state, found), *command])


@click.command("port-forward")
@noun_argument("session")
@click.argument("port", metavar="[LOCAL:]PORT")
@pass_state
def port_forward(state: State, session: str, port: str) -> int:
    """Reach a port of a session at this machine, until Ctrl-C."""
    local, _, remote = port.rpartition(":")
    if not (remote.isdecimal() and (local or remote).isdecimal()):
        raise click.BadParameter(f"{port!r} is no port: write 8888 or 9000:8888.")
    words = _ssh_words(state, find_session(state.portal, session, ended=False))
    tell(f"http://127.0.0.1:{local or remote} is port {remote} of {session}. Ctrl-C ends it.")
    forward = ["-N", "-o", "ExitOnForwardFailure=yes", "-L", f"127.0.0.1:{local or remote}:127.0.0.1:{remote}"]
    return _run_ssh([words[0], *forward, *words[1:]])


@click.command("ssh-config")
@click.option("--write", is_flag=True, help="Write it, and one Include line into ~/.ssh/config.")
@pass_state
def ssh_config(state: State, write: bool) -> None:
    """Print the configuration with which ssh, scp and VS Code know all your sessions by name."""
    told = state.portal.send(api.ssh_config())
    if not write:
        click.echo(told["config"], nl=False)
        return
    known = write_private(config_folder() / "known_hosts", told["known_hosts"] + "\n")
    with_keys = rf'\g<0>\n    UserKnownHostsFile "{known.as_posix()}" ~/.ssh/known_hosts'  # for these hosts only
    ours = write_private(config_folder() / "ssh_config", re.sub(r"(?m)^Host .*", with_keys, told["config"]))
    main, line = Path.home() / ".ssh" / "config", f'Include "{ours.as_posix()}"'
    before = main.read_text() if main.exists() else ""
    if ours.as_posix() not in before:
        write_private(main, f"{line}\n\n{before}")
    tell(f"{main} includes {ours}.")


@click.command("open")
@noun_argument("session")
@click.argument("app", required=False)
@click.option("--print", "only_prints", is_flag=True, help="Print the address only.")
@pass_state
def open_app(state: State, session: str, app: str | None, only_prints: bool) -> None:
    """Open the page of a session, or one of its apps, in a browser."""
    found = find_session(state.portal, session)
    address = f"{state.portal.url}/sessions/{found.id}/"
    if app:
        _app_of(state, found, (app,))
        address += f"apps/{app}/"
    click.echo(address)
    if not only_prints:
        click.launch(address)


@click.command()
@noun_argument("session")
@pass_state
def jupyter(state: State, session: str) -> None:
    """Print the lines with which a JupyterLab on this machine runs its kernels in a session."""
    found = find_session(state.portal, session, ended=False)
    app = _app_of(state, found, _NOTEBOOKS)
    in_shell = os.environ.get("BAI_TOKEN") == state.profile.token
    token = "$BAI_TOKEN" if in_shell else f"$(cat {shlex.quote(str(state.profile.token_file))})"
    click.echo(f"export JUPYTER_GATEWAY_URL={shlex.quote(app['program_url'])}")
    click.echo("export JUPYTER_GATEWAY_AUTH_SCHEME=Bearer")
    click.echo(f'export JUPYTER_GATEWAY_AUTH_TOKEN="{token}"')
    click.echo("jupyter lab")


def _app_of(state: State, session: Session, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the first of these apps. Raises Problem with the reason why it cannot be opened."""
    apps = {one["name"]: one for one in state.portal.send(api.apps(session.id)).results}
    app = next((apps[name] for name in names if name in apps), None)
    if app is None:
        detail = f"{session.name} has no app {names[0]}. It has: {', '.join(sorted(apps)) or 'none'}."
        raise Problem(404, {"code": "no-app", "detail": detail})
    if app.get("code"):
        raise Problem(409, {"code": app["code"], "detail": app["reason"]})
    return app


def _ssh_words(state: State, session: Session) -> list[str]:
    """Return the command that reaches a session, with a key of its own that is fetched once."""
    way = state.portal.send(api.ssh(session.id))
    key = cache_folder() / "keys" / session.id
    if not key.exists():
        write_private(key, state.portal.send(api.ssh_key(session.id))["private_key"])
    known = write_private(cache_folder() / "keys" / f"{session.id}.known_hosts", way["known_hosts"] + "\n")
    options = {"IdentitiesOnly": "yes", "UserKnownHostsFile": f'"{known.as_posix()}"', "StrictHostKeyChecking": "yes"}
    words = [f"-o{name}={value}" for name, value in options.items()]
    return ["ssh", "-i", str(key), "-p", str(way["port"]), *words, f"{way['user']}@{way['host']}"]


def _run_ssh(words: list[str]) -> int:
    try:
        if sys.platform == "win32":  # has no exec that keeps the terminal
            return subprocess.call(words)
        sys.stdout.flush()
        os.execvp(words[0], words)  # noqa: S606
    except FileNotFoundError as error:
        raise Problem(409, {"code": "no-ssh", "detail": "ssh is not installed here: install OpenSSH."}) from error


COMMANDS = [ssh, ssh_config, port_forward, open_app, jupyter]
