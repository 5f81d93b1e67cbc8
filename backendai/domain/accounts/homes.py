"""Collects the files for the home of a new session.

They are dotfiles of domain, project and user, the user's SSH keys, and the bootstrap script.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import CharField, QuerySet, Value
from django.db.models.functions import Cast, Concat

from backendai.base.paths.home_paths import AUTHORIZED_KEYS, clash
from backendai.base.wire.messages import HomeFile
from backendai.domain.accounts.models import BootstrapScript, Dotfile, SshKey

_KEY, _FILE, _SCRIPT = "key", "file", "script"


class Residents(NamedTuple):
    """The owners of a session's files. If two have a file on the same path, the earlier owner's file counts."""

    user: UUID
    project: UUID
    domain: int


@dataclass(frozen=True, slots=True)
class Home:
    """The files of a session's home; ``bootstrap`` is empty without a script."""

    files: tuple[HomeFile, ...] = ()
    bootstrap: str = ""


def homes_of(wanted: Collection[Residents]) -> dict[Residents, Home]:
    """Return the home of each of these, in one query."""
    rows: dict[tuple[str, str], list[tuple[str, str, str]]] = defaultdict(list)
    for owner, kind, path, permission, content in _rows(wanted):
        rows[kind, owner.replace("-", "")].append((path, permission, content))
    return {one: _home(one, rows) for one in set(wanted)}


def _home(residents: Residents, rows: dict[tuple[str, str], list[tuple[str, str, str]]]) -> Home:
    user = residents.user.hex
    files: list[HomeFile] = []
    for owner in (f"user{user}", f"project{residents.project.hex}", f"domain{residents.domain}"):
        above = list(files)
        for path, permission, content in sorted(rows.get((_FILE, owner), ())):
            if not any(clash(path, one.path) for one in above):
                files.append(HomeFile(path=path, mode=int(permission, 8), content=content))
    if keys := rows.get((_KEY, f"user{user}")):
        content = "".join(f"{key} {name}\n" for name, _, key in sorted(keys))
        files.append(HomeFile(path=AUTHORIZED_KEYS, mode=0o600, content=content))
    scripts = rows.get((_SCRIPT, f"user{user}"))
    return Home(tuple(files), scripts[0][2] if scripts else "")


def _rows(wanted: Collection[Residents]) -> Iterable[Any]:
    if len(wanted) == 1:
        return list(_of_one(*next(iter(wanted))))
    if not wanted:
        return ()
    return _union({one.user for one in wanted}, {one.project for one in wanted}, {one.domain for one in wanted})


def _union(users: Collection[UUID], projects: Collection[UUID], domains: Collection[int]) -> QuerySet[Any, Any]:
    first, *others = [
        _part(Dotfile, "user", users, _FILE, "path", "permission", "content"),
        _part(Dotfile, "project", projects, _FILE, "path", "permission", "content"),
        _part(Dotfile, "domain", domains, _FILE, "path", "permission", "content"),
        _part(SshKey, "user", users, _KEY, "name", "fingerprint", "public_key"),
        _part(BootstrapScript, "user", users, _SCRIPT, None, None, "content"),
    ]
    united: QuerySet[Any, Any] = first.union(*others, all=True)
    return united


def _part(model: Any, owner: str, ids: Collection[Any], kind: str, *columns: str | None) -> QuerySet[Any, Any]:
    rows = model.objects.filter(**{f"{owner}__in": ids}).order_by()
    whose = Concat(Value(owner), Cast(f"{owner}_id", CharField()), output_field=CharField())
    shown = [Cast(name, CharField()) if name else Value("", CharField()) for name in columns]
    named: QuerySet[Any, Any] = rows.values_list(whose, Value(kind, CharField()), *shown)
    return named


def _of_one(user: Any, project: Any, domain: Any) -> QuerySet[Any, Any]:
    return _union([user], [project], [domain])
