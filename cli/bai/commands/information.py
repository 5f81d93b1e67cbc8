"""What there is: images, use, limits."""

from __future__ import annotations

import click

from bai.output import amounts, columns, listing, show, size
from bai.sdk import api
from bai.sdk.call import Problem
from bai.sdk.nouns import Session
from bai.state import State, pass_state

_IMAGES = columns(
    "*id name title minimum size *architecture *reference",
    minimum=lambda one: amounts(one.minimum),
    size=lambda one: size(one.size_bytes),
)
_USE = columns(
    "session slot used holds average",
    used=lambda row: _amount(row["slot"], row["used"]),
    holds=lambda row: _amount(row["slot"], row["holds"]),
    average=lambda row: "–" if row["average"] is None else f"{row['average']:.0%}",
)
_QUOTA = columns(
    "slot of used limit left",
    used=lambda row: _amount(row["slot"], row["used"]),
    limit=lambda row: _amount(row["slot"], row["limit"]),
    left=lambda row: _amount(row["slot"], row["remaining"]),
)


@click.group()
def image() -> None:
    """Images that sessions start from."""


@image.command("ls")
@click.option("--mine", is_flag=True, help="Images of your own as well.")
@listing
@pass_state
def image_ls(state: State, mine: bool, output: str, quiet: bool) -> None:
    """List images."""
    show(state.portal.each(api.images(mine=True if mine else None)), _IMAGES, output=output, quiet=quiet)


@click.command()
@listing
@pass_state
def top(state: State, output: str, quiet: bool) -> None:
    """List what your running sessions use of what they hold."""
    mine = api.sessions(status=["RUNNING"], owner=state.portal.send(api.me())["email"])
    rows = [row for session in state.portal.each(mine) for row in _use_of(state, session)]
    show(rows, _USE, output=output, quiet=quiet)


def _use_of(state: State, session: Session) -> list[dict[str, object]]:
    try:
        use = state.portal.send(api.usage(session.id))
    except Problem as problem:
        if problem.status == 404:  # it has ended meanwhile
            return []
        raise
    last = use["points"][-1]["used"] if use["points"] else {}
    return [
        {"id": session.id, "session": session.name, "slot": slot, "used": last.get(slot), "holds": held}
        | {"average": use["averages"]["slots"].get(slot)}
        for slot, held in use["held"].items()
    ]


@click.command()
@click.option("--project", help="The project that counts.")
@listing
@pass_state
def quota(state: State, project: str | None, output: str, quiet: bool) -> None:
    """List your limits, what is used of them, and what is left."""
    answer = state.portal.send(api.limits(project=project or state.profile.project or None))
    rows = [
        {"slot": slot, "of": f"{one['scope']} {one['name']}", **told}
        for one in answer["limits"]
        for slot, told in [*one["slots"].items(), ("sessions", one["sessions"])]
    ]
    show(rows, _QUOTA, output=output, quiet=quiet)


def _amount(slot: str, value: object) -> object:
    return "∞" if value is None else size(value) if slot == "mem" else value


COMMANDS = [image, top, quota]
