"""Stores the whole state of a list of sessions in its address. So a list can be saved and shared, and Back works."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import QueryDict
from django.utils.http import urlencode

# In this order they stand in the address. What is not named here is left out.
NAMES = (
    "view", "type", "whose", "q", "status", "group", "agent", "owner", "project", "domain", "label", "id", "sort",
    "size", "page",
)  # fmt: skip
_SEVERAL = frozenset({"status", "label"})
_LONGEST = 254
SIZES = (10, 25, 50, 100)
USUAL_SIZE = 25


@dataclass(frozen=True, slots=True)
class Address:
    """The parameters of an address, without empty, unknown and default ones."""

    params: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, query: QueryDict) -> Address:
        """Return the address of a request."""
        params = []
        for name in NAMES:
            values = query.getlist(name) if name in _SEVERAL else query.getlist(name)[-1:]
            params += [(name, value.strip()[:_LONGEST]) for value in dict.fromkeys(values) if value.strip()]
        return cls(tuple(params))

    def get(self, name: str) -> str:
        """Return the value of a parameter; empty if it is missing."""
        return next((value for key, value in self.params if key == name), "")

    def to(self, **changes: str) -> str:
        """Return the address with changed parameters; empty ones are removed.

        Starts at the first page unless it names one.
        """
        changed = {"page": ""} | changes
        kept = [(name, value) for name, value in self.params if name not in changed]
        return _written([*kept, *changed.items()])

    def without(self, name: str, value: str) -> str:
        """Return the address without this value of a parameter, at the first page."""
        return _written([one for one in self.params if one != (name, value) and one[0] != "page"])

    def cleared(self, names: frozenset[str]) -> str:
        """Return the address without these parameters, at the first page."""
        return _written([one for one in self.params if one[0] not in names and one[0] != "page"])

    @property
    def here(self) -> str:
        """The address itself."""
        return _written(self.params)

    @property
    def finished(self) -> bool:
        """Whether the list shows ended sessions instead of live ones; a share ends with its session."""
        return self.get("view") == "finished" and not self.shared

    @property
    def mine(self) -> bool:
        """Whether an administrator sees only their own sessions."""
        return self.get("whose") == "mine"

    @property
    def shared(self) -> bool:
        """Whether the list shows the sessions that others share with the user."""
        return self.get("whose") == "shared"

    @property
    def type(self) -> str:
        """The requested type of sessions; empty for all."""
        return self.get("type")

    @property
    def size(self) -> int:
        """The number of rows of a page."""
        text = self.get("size")
        return int(text) if text in map(str, SIZES) else USUAL_SIZE


def _written(params: tuple[tuple[str, str], ...] | list[tuple[str, str]]) -> str:
    said = [(name, value) for name, value in params if value]
    said.sort(key=lambda one: NAMES.index(one[0]))
    return f"?{urlencode(said)}"
