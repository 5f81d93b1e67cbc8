"""Compares each revision of an endpoint with the one before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backendai.base.core.slots import Slots
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.domain.serving.models import Revision


@dataclass(frozen=True, slots=True)
class Change:
    """A line of the comparison: the name of the value, the old and the new value."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Compared:
    """A revision with its changes since the one before; ``changes`` None: the earlier revision is unknown."""

    revision: Revision
    changes: tuple[Change, ...] | None


def compared(newest_first: Sequence[Revision]) -> list[Compared]:
    """Return each revision with its changes. Leaves out the values of environment variables, which may be secret."""
    before = {one.number: one for one in newest_first}
    return [
        Compared(one, _changes(before[one.number - 1], one) if one.number - 1 in before else None)
        for one in newest_first
    ]


def _changes(old: Revision, new: Revision) -> tuple[Change, ...]:
    first, second = _told(old), _told(new)
    lines = [Change(name, *_apart(first[name], second[name])) for name in second if first[name] != second[name]]
    secret = sorted(
        name for name in old.environ.keys() | new.environ.keys() if old.environ.get(name) != new.environ.get(name)
    )
    return (*lines, *(Change(name, _there(old.environ, name), _there(new.environ, name)) for name in secret))


def _apart(old: str, new: str) -> tuple[str, str]:
    """Return both texts without the lines with which both begin and end."""
    first, second = old.splitlines(), new.splitlines()
    for _side in range(2):
        while len(first) > 1 and len(second) > 1 and first[-1] == second[-1]:
            del first[-1], second[-1]
        first, second = first[::-1], second[::-1]
    return "\n".join(first), "\n".join(second)


def _told(one: Revision) -> dict[str, str]:
    return {
        _("Image"): one.image.name,
        _("Command"): one.command,
        _("Port"): str(one.port),
        _("Health path"): one.probe_path or "–",
        _("Model name"): one.model_name or "–",
        _("Amounts"): in_words(Slots.parse(one.slots).describe()),
        _("Folders"): ", ".join(str(mount.get("folder", "")) for mount in one.mounts) or "–",
    }


def _there(environ: Mapping[str, Any], name: str) -> str:
    return _("set") if name in environ else "–"
