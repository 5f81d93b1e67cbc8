"""Things by name, ID or the beginning of either; and the names that a shell completes, for a minute from a file."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Callable, TypeVar
from uuid import UUID

import click

from bai.config import cache_folder, read_profile, write_private
from bai.sdk import api
from bai.sdk.call import Call, Page, Problem, Unreachable
from bai.sdk.client import Client
from bai.sdk.nouns import Noun, Session
from bai.state import State, client_of

N = TypeVar("N", bound=Noun)
_CACHE_SECONDS = 60.0
_MOST_CANDIDATES = 10
_HEX = re.compile("[0-9a-f-]{4,}")
LISTS: dict[str, Callable[[], Call[Page[Any]]]] = {
    "session": lambda: api.sessions(live=True),
    "folder": api.folders,
    "endpoint": api.endpoints,
    "run": api.runs,
    "agent": api.agents,
}


class _NotFound(Problem):
    def __init__(self, kind: str, text: str, hint: str = "") -> None:
        detail = f"There is no {kind} {text}, or none that you may see.{hint}"
        super().__init__(404, {"code": "not-found", "detail": detail})


def pick(things: Iterable[N], text: str, kind: str) -> N:
    """Return the one that is meant. Raises a Problem: none is, or several, which it names."""
    things = list(things)
    for found in (
        [one for one in things if one.id == text],
        [one for one in things if one.name == text],
        [one for one in things if one.name.startswith(text) or (len(text) > 3 and one.id.startswith(text.lower()))],
    ):
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(f"{one.name} ({one.id[:8]})" for one in found[:_MOST_CANDIDATES])
            detail = f"{text} can be any of: {names}. Write more of the name, or the ID."
            raise Problem(409, {"code": "ambiguous-name", "detail": detail})
    raise _NotFound(kind, text)


def find(portal: Client, kind: str, text: str) -> Any:
    """Return a folder, endpoint, run or agent."""
    return pick(portal.each(LISTS[kind]()), text, kind)


def find_own(portal: Client, kind: str, text: str) -> Any:
    """Return what a command changes for good: one's own by its whole name, that of others by its ID."""
    if kind == "session":
        with suppress(ValueError):
            return portal.send(api.session(str(UUID(text))))
    me = portal.send(api.me())["email"]
    call = api.sessions(live=True, search=text, owner=me) if kind == "session" else LISTS[kind]()
    for found in portal.each(call):
        if text == found.id or (text == found.name and getattr(found, "owner", "") in ("", me)):
            return found
    raise _NotFound(kind, text, " This command takes whole names of your own, and IDs.")


def find_session(portal: Client, text: str, *, ended: bool = True) -> Session:
    """Return a session: a live one, or with ``ended`` else the newest of that name that has ended."""
    with suppress(ValueError):
        return portal.send(api.session(str(UUID(text))))
    ways: list[Callable[[], Iterable[Session]]] = [
        lambda: portal.each(api.sessions(live=True, search=text)),
        lambda: portal.each(api.sessions(live=True)) if _HEX.fullmatch(text) else [],
    ]
    if ended:
        ways.append(lambda: _newest(portal.send(api.sessions(live=False, search=text)).results, text))
    for way in ways:
        with suppress(_NotFound):
            return pick(way(), text, "session")
    raise _NotFound("session", text)


def _newest(over: list[Session], text: str) -> list[Session]:
    """Return the newest of the ended sessions with just this name, else all that match."""
    return [one for one in over if one.name == text][:1] or over


def completing(kind: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return a completion of names."""

    def complete(ctx: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
        with suppress(Problem, Unreachable, OSError, ValueError):  # a shell shows no errors while one types
            return [name for name in _names(ctx, kind) if name.startswith(typed)]
        return []

    return complete


def _names(ctx: click.Context, kind: str) -> list[str]:
    state = ctx.find_object(State) or State()
    profile = read_profile(state.profile_name)
    path = cache_folder() / "names" / f"{profile.name}-{kind}.json"
    if path.exists() and time.time() - path.stat().st_mtime < _CACHE_SECONDS:
        return list(json.loads(path.read_text()))
    page = client_of(profile).send(LISTS[kind]())
    names = [one.name for one in page.results]
    write_private(path, json.dumps(names))
    return names


def noun_argument(kind: str, name: str = "", **options: Any) -> Callable[[Any], Any]:
    """Return an argument that names a thing, with completion."""
    return click.argument(name or kind, metavar=(name or kind).upper(), shell_complete=completing(kind), **options)
