"""Signing in and out, requests by hand, completion, help."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
from click.shell_completion import get_completion_class

from bai.config import Profile, keys_for, remove_token, save_profile
from bai.output import dump
from bai.sdk import api
from bai.sdk.call import Problem
from bai.sdk.client import Client
from bai.state import State, client_of, pass_state, tell

_SLOWER = 5
_HOSTS_HERE = ("localhost", "127.0.0.1", "::1")


@click.command()
@click.argument("url")
@click.option("--token", metavar="-", help="Read a token from standard input instead of using a browser.")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.option("--scope", help="What the token may do, as 'read sessions'.")
@click.option("--project", help="Your usual project.")
@click.option("--resource-group", help="Your usual resource group.")
@click.option("--ca", type=click.Path(exists=True, dir_okay=False, resolve_path=True), help="Certificates to trust.")
@click.option("--insecure", is_flag=True, help="Do not check the certificate.")
@pass_state
def login(state: State, /, url: str, token: str | None, no_browser: bool, scope: str | None, **keys: Any) -> None:
    """Sign in to a portal, in a browser on any machine."""
    if token not in (None, "-"):
        raise click.UsageError(
            "A token does not belong into a command line: write --token - and give it to standard input."
        )
    name = state.profile_name or "default"
    told = {key: value for key, value in keys.items() if value}
    url = url.rstrip("/")
    profile = Profile(**{**keys_for(name, url), **told, "name": name, "url": url})
    parts = urlsplit(profile.url)
    if parts.scheme == "http" and parts.hostname not in _HOSTS_HERE:
        tell(f"Warning: {profile.url} is not encrypted: others in the network can read your token.")
    if token == "-":  # noqa: S105
        text = sys.stdin.readline().strip()
    else:
        text = _by_browser(client_of(profile), scope or "", opens=not no_browser)
    profile = replace(profile, token=text)
    with client_of(profile) as portal:
        person = portal.send(api.me())
    save_profile(profile)
    tell(f"Signed in to {profile.url} as {person['email']} (profile {name}).")


def _by_browser(portal: Client, scope: str, *, opens: bool) -> str:
    """Return a token once a person has allowed it in a browser. Raises Problem."""
    asked = {"client_name": f"bai on {socket.gethostname()}"[:64]} | ({"scope": scope} if scope else {})
    begun = portal.send(api.begin_sign_in(**asked))
    tell(f"Open {begun['verification_uri']} and enter the code {begun['user_code']}")
    address = str(begun.get("verification_uri_complete") or begun["verification_uri"])
    if opens and urlsplit(address).scheme in ("http", "https"):
        click.launch(address)
    pause, deadline = float(begun.get("interval") or _SLOWER), time.monotonic() + float(begun["expires_in"])
    while time.monotonic() < deadline:
        time.sleep(pause)
        try:
            return str(portal.send(api.ask_for_token(device_code=begun["device_code"]))["access_token"])
        except Problem as problem:
            error = str(problem.body.get("error") or problem.code)
            if error == "slow_down" or problem.status == 429:
                pause += _SLOWER
            elif error != "authorization_pending":
                told = problem.body.get("detail") or problem.body.get("error_description")
                raise Problem(401, {"code": error, "detail": told or f"No token was given: {error}."}) from problem
    raise Problem(401, {"code": "expired_token", "detail": "Nobody entered the code in time."})


@click.command()
@pass_state
def logout(state: State) -> None:
    """Revoke the token of this machine, and delete it."""
    profile = state.profile
    if not profile.token:
        tell("You are not signed in.")
        return
    try:
        state.portal.send(api.revoke_token())
    except Problem as problem:
        if problem.status != 401:  # it was revoked or has ended
            raise
    remove_token(profile)


@click.command("api")
@click.argument("method", type=click.Choice(["GET", "POST", "PUT", "PATCH", "DELETE"], case_sensitive=False))
@click.argument("path")
@click.option("-d", "--data", metavar="JSON", help="The body: JSON, @FILE, or - for standard input.")
@click.option("--all", "is_all", is_flag=True, help="Follow the pages of a list.")
@pass_state
def call_api(state: State, method: str, path: str, data: str | None, is_all: bool) -> None:
    """Send any request below /api/v1 and print the answer as JSON."""
    path = "/" + path.removeprefix("/api/v1").lstrip("/")
    if data is not None and data[:1] in ("@", "-"):
        data = sys.stdin.read() if data == "-" else Path(data[1:]).read_text()
    call = api.raw(method.upper(), path, json.loads(data) if data else None)
    answer = state.portal.send(call)
    while is_all and isinstance(answer, dict) and answer.get("next"):
        path = f"{path.partition('?')[0]}?{urlsplit(answer['next']).query}"
        more = state.portal.send(api.raw("GET", path))
        answer = {**more, "results": answer["results"] + more["results"]}
    if isinstance(answer, str):
        click.echo(answer, nl=False)
    elif answer:
        dump(answer, "json")


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what completes commands and names: eval "$(bai completion bash)"."""
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "bai", "_BAI_COMPLETE").source())


@click.command("help")
@click.argument("words", nargs=-1, metavar="[COMMAND]…")
@click.option("--markdown", is_flag=True, help="All commands as a table.")
@click.pass_context
def show_help(ctx: click.Context, words: tuple[str, ...], markdown: bool) -> None:
    """Explain a command."""
    root = ctx.find_root()
    if markdown:
        click.echo("| Command | Does |\n|---|---|")
        for path, command in _leaves("bai", root.command):
            click.echo(f"| `{path}` | {command.get_short_help_str(200)} |")
        return
    context, command = root, root.command
    for word in words:
        found = command.get_command(context, word) if isinstance(command, click.Group) else None
        if found is None:
            raise click.UsageError(f"There is no command {' '.join(words)}.")
        context, command = click.Context(found, info_name=word, parent=context), found
    click.echo(command.get_help(context))


def _leaves(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    commands: Mapping[str, click.Command] = getattr(command, "commands", {})
    for name, one in commands.items():
        yield from _leaves(f"{path} {name}", one)
    if not commands:
        yield path, command


COMMANDS = [login, logout, call_api, completion, show_help]
