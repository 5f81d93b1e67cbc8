"""What administrators do."""

from __future__ import annotations

from datetime import datetime, timezone

import click

from bai.commands.sessions import duration
from bai.names import find_own, noun_argument
from bai.output import amounts, columns, listing, show
from bai.sdk import api
from bai.state import State, pass_state

_AGENTS = columns(
    "*id name status resource_group occupied capacity last_seen_at *backend",
    occupied=lambda one: amounts(one.occupied),
    capacity=lambda one: amounts(one.capacity),
)
_USERS = columns("*id email full_name role domain")
_QUEUE = columns(
    "queue_position name owner priority resources status_message", resources=lambda row: amounts(row["resources"])
)


@click.group()
def admin() -> None:
    """Agents, people and the queue, for administrators."""


@admin.command("agents")
@listing
@pass_state
def agents(state: State, output: str, quiet: bool) -> None:
    """List agents."""
    show(state.portal.each(api.agents()), _AGENTS, output=output, quiet=quiet)


@admin.command("drain")
@noun_argument("agent")
@click.option("--end", metavar="TIME", help="End its sessions after 30m, 2h or 1d.")
@click.option("--cancel", is_flag=True, help="Let it take sessions again.")
@pass_state
def drain(state: State, agent: str, end: str | None, cancel: bool) -> None:
    """Let an agent take no new sessions."""
    found = find_own(state.portal, "agent", agent)
    ends_at = {"ends_at": (datetime.now(timezone.utc) + duration(end)).isoformat()} if end else {}
    state.portal.send(api.cancel_drain(found.id) if cancel else api.drain(found.id, **ends_at))


@admin.command("users")
@click.option("--search", help="A part of the name or address.")
@listing
@pass_state
def users(state: State, search: str | None, output: str, quiet: bool) -> None:
    """List people."""
    show(state.portal.each(api.users(search=search)), _USERS, output=output, quiet=quiet)


@admin.command("queue")
@click.argument("group", default="default")
@listing
@pass_state
def queue(state: State, group: str, output: str, quiet: bool) -> None:
    """List the pending sessions of a resource group in their order."""
    show(state.portal.each(api.queue(group)), _QUEUE, output=output, quiet=quiet)


COMMANDS = [admin]
