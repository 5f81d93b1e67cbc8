"""Sessions: list, look at, wait for, end."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta, timezone
from typing import Any

import click

from bai.names import find_own, find_session, noun_argument
from bai.output import ago, amounts, columns, dump, listing, show, show_one
from bai.sdk import api
from bai.sdk.call import Problem
from bai.sdk.client import Client
from bai.sdk.nouns import Run, Session
from bai.state import State, pass_state, tell
from bai.waiting import until_ended, why_lines

_LIST = columns(
    "*id name status type image resources created_at *owner *project *resource_group *ends_at why",
    status=lambda one: one.status if one.result in ("", "UNDEFINED") else f"{one.status} {one.result}",
    resources=lambda one: amounts(one.resources) + (f" ×{one.cluster_size}" if one.cluster_size > 1 else ""),
    why=lambda one: "" if one.status in ("RUNNING", "TERMINATED") else one.status_message,
)
_MORE = columns(
    "started_at ended_at command folders agents exit_code",
    command=lambda one: one.data.get("startup_command"),
    folders=lambda one: ", ".join(f"{it['name']} at {it['target']}" for it in one.data.get("mounts", ())),
    agents=lambda one: ", ".join(sorted({it["agent"] for it in one.kernels if it.get("agent")})),
    exit_code=lambda one: one.exit_code if one.has_ended else None,
)
_DURATION = re.compile(r"(\d+)([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@click.command()
@click.option("-a", "--all", "is_all", is_flag=True, help="Ended ones as well.")
@click.option("--mine", is_flag=True, help="Only your own.")
@click.option("--status", multiple=True, help="Only these, as PENDING or RUNNING.")
@click.option("--label", multiple=True, metavar="KEY[=VALUE]", help="Only with this label.")
@click.option("-n", "--limit", default=50, show_default=True, help="So many at most.")
@listing
@pass_state
def ps(
    state: State,
    is_all: bool,
    mine: bool,
    status: tuple[str, ...],
    label: tuple[str, ...],
    limit: int,
    output: str,
    quiet: bool,
) -> None:
    """List sessions, the newest first."""
    filters: dict[str, Any] = {"live": None if is_all or status else True, "status": [one.upper() for one in status]}
    filters["label"] = list(label)
    if mine:
        filters["owner"] = state.portal.send(api.me())["email"]
    found = zip(range(limit), state.portal.each(api.sessions(**{**filters, "page_size": min(limit, 100)})))
    show([one for _, one in found], _LIST, output=output, quiet=quiet)


@click.command("show")
@noun_argument("session")
@listing
@pass_state
def show_session(state: State, session: str, output: str, quiet: bool) -> None:
    """Show one session."""
    show_one(find_session(state.portal, session), [*_LIST, *_MORE], output=output, quiet=quiet)


@click.command()
@noun_argument("session")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table")
@pass_state
def why(state: State, session: str, output: str) -> None:
    """Say why a session waits, and what would start it now."""
    answer = state.portal.send(api.explain(find_session(state.portal, session).id))
    if output != "table":
        dump(answer, output)
        return
    for line in why_lines(answer):
        click.echo(line)


@click.command()
@noun_argument("session", "sessions", nargs=-1, required=True)
@pass_state
def wait(state: State, sessions: tuple[str, ...]) -> int:
    """Wait until sessions or runs end; the exit code is theirs, the first that is not 0."""
    things = [find_session_or_run(state.portal, one) for one in sessions]
    codes = [until_ended(state.portal, thing) for thing in things]
    return next((code for code in codes if code), 0)


@click.command()
@noun_argument("session", "sessions", nargs=-1, required=True)
@click.option("-f", "--force", is_flag=True, help="Do not wait for the programs.")
@pass_state
def rm(state: State, sessions: tuple[str, ...], force: bool) -> int:
    """End sessions. Their home folders are deleted."""
    ids = [find_own(state.portal, "session", one).id for one in sessions]
    answer = state.portal.send(api.terminate(sessions=ids, force=force))
    for one in answer["refused"]:
        tell(f"{one['name'] or one['id']}: {one['message']}")
    return 1 if answer["refused"] else 0


@click.command()
@noun_argument("session", "sessions", nargs=-1, required=True)
@pass_state
def stop(state: State, sessions: tuple[str, ...]) -> None:
    """Stop sessions: their home folders are stored, and their resources become free."""
    for one in sessions:
        state.portal.send(api.stop(find_own(state.portal, "session", one).id))


@click.command()
@noun_argument("session", "sessions", nargs=-1, required=True)
@pass_state
def resume(state: State, sessions: tuple[str, ...]) -> None:
    """Queue stopped sessions, which start with their stored home folders; waits for stops under way."""
    for one in sessions:
        while find_own(state.portal, "session", one).status == "STOPPING":  # its files are being stored
            time.sleep(1)
        state.portal.send(api.resume(find_own(state.portal, "session", one).id))


@click.command()
@noun_argument("session")
@click.argument("name")
@pass_state
def rename(state: State, session: str, name: str) -> None:
    """Give a session another name."""
    state.portal.send(api.rename(find_own(state.portal, "session", session).id, name=name))


@click.command()
@noun_argument("session")
@click.option("--by", metavar="TIME", help="Move the end of the session by so much, as 90m, 2h or 1d.")
@click.option("--no-end", is_flag=True, help="Remove the time limit.")
@pass_state
def extend(state: State, session: str, by: str | None, no_end: bool) -> None:
    """Postpone the end that an idle check has announced, or move the end."""
    found = find_session(state.portal, session, ended=False)
    if by or no_end:
        since = found.ends_at or datetime.now(timezone.utc)
        end = None if no_end else (since + duration(by or "")).isoformat()
        moved = state.portal.send(api.move_end(found.id, ends_at=end))
        click.echo(f"{found.name} ends {ago(moved.ends_at)}." if moved.ends_at else f"{found.name} has no time limit.")
        return
    warned = [one for one in state.portal.send(api.idle_checks(found.id))["results"] if one["verdict"] != "keep"]
    if not warned:
        raise Problem(
            404, {"code": "no-idle-warning", "detail": f"No idle check has announced the end of {found.name}."}
        )
    for one in warned:
        state.portal.send(api.extend_idle(found.id, checker=one["checker"]))
        click.echo(f"{one['name']}: {one['extension_seconds']} s more for {found.name}.")


def duration(text: str) -> timedelta:
    """Return 90m, 2h or 1d as a duration. Raises BadParameter."""
    parts = _DURATION.findall(text)
    if not parts or "".join(map("".join, parts)) != text:
        raise click.BadParameter(f"{text!r} is no duration: write 90m, 2h, 1d or 1h30m.")
    return timedelta(seconds=sum(int(number) * _UNITS[unit] for number, unit in parts))


def find_session_or_run(portal: Client, text: str) -> Session | Run:
    """Return a session, or an array or pipeline, of that name."""
    runs = [one for one in portal.send(api.runs()).results if text in (one.name, one.id)]
    return runs[0] if runs else find_session(portal, text)


COMMANDS = [ps, show_session, why, wait, stop, resume, rm, rename, extend]
