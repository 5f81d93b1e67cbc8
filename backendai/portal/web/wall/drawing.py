"""The drawings of the wall: the cells of an agent, and the waits of the last hour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from zlib import crc32

from django.utils.html import format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext_noop as _noop

from backendai.base.texts.translation import gettext as _
from backendai.domain.cluster.models import Agent
from backendai.domain.planning.wall import Cell, CellState, Holder, Tile
from backendai.portal.web.admin.agents.pages import takes_sessions
from backendai.portal.web.dashboard.resources import name_of_slot

_STEP, _WIDTH, _HEIGHT = 10, 9, 100  # drawing units
_WORDS = {
    CellState.BUSY: _noop("busy"),
    CellState.IDLE: _noop("idle"),
    CellState.RESERVED: _noop("reserved"),
    CellState.FREE: _noop("free"),
    CellState.UNHEALTHY: _noop("unhealthy"),
}


@dataclass(frozen=True, slots=True)
class DrawnTile:
    """An agent on the wall. ``key``: its id on the page. ``accepts``: whether it takes sessions, in words. ``mood``:
    ``lost``, ``closed`` (it takes no sessions) or empty."""

    key: str
    name: str
    tile: Tile
    accepts: str
    mood: str

    @property
    def is_plain(self) -> bool:
        """Whether the cells are the processors and the memory of an agent without devices."""
        return self.tile.cells[0].slot == "cpu"

    @property
    def width(self) -> int:
        """The width of the drawing."""
        return _STEP * len(self.tile.cells)

    @property
    def drawing(self) -> SafeString:
        """The cells: for each a frame of its state, and in it the use."""
        return mark_safe("".join(_rectangles(self.tile.cells)))  # noqa: S308  (our own words and numbers)

    @property
    def devices(self) -> str:
        """The states of the cells in words, by slot."""
        found = [
            f"{name_of_slot(slot)}: {', '.join(map(_words, cells))}"
            for slot, cells in groupby(self.tile.cells, key=lambda cell: cell.slot)
        ]
        more = _("%(number)s more") % {"number": self.tile.left_out} if self.tile.left_out else ""
        return "; ".join(filter(None, [*found, more]))

    @property
    def holders(self) -> list[tuple[str, Holder, int]]:
        """The holders that the user may see: mark, names and number of kernels."""
        return [(_mark(one), one, number) for one, number in sorted(self.tile.kernels.items()) if one.owner]

    @property
    def others(self) -> int:
        """The number of kernels of other holders."""
        return sum(number for one, number in self.tile.kernels.items() if not one.owner)


def drawn(tile: Tile, number: int, *, is_named: bool) -> DrawnTile:
    """Return the drawing of an agent, which is a number to those who may not see agents."""
    key, name = (str(tile.agent.pk), tile.agent.name) if is_named else (str(number), str(number))
    accepts = takes_sessions(tile.agent)
    closed = "" if accepts == _("yes") else "closed"
    return DrawnTile(key, name, tile, accepts, "lost" if tile.agent.status == Agent.Status.LOST else closed)


def counts_of(tiles: Iterable[DrawnTile]) -> list[tuple[CellState, str, int]]:
    """Return the number of cells in each state, with its word: of devices, or of processors if there is no device."""
    cells = [cell for tile in tiles for cell in tile.tile.cells]
    devices = [cell for cell in cells if cell.slot not in ("cpu", "mem")]
    numbers = Counter(cell.state for cell in devices or [cell for cell in cells if cell.slot == "cpu"])
    return [(state, _(word), numbers[state]) for state, word in _WORDS.items()]


def bars_of(means: Sequence[float]) -> SafeString:
    """Return the bars of mean waits; the longest has the full height."""
    most = max(means) or 1.0
    heights = [round(_HEIGHT * mean / most) for mean in means]
    bars = [("wall-bar", _STEP * place, _HEIGHT - high, _WIDTH, high) for place, high in enumerate(heights)]
    return format_html_join("", '<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>', bars)


def _rectangles(cells: Sequence[Cell]) -> Iterator[str]:
    # Without escaping, which took half of the page's time: nothing in it comes from people.
    for place, cell in enumerate(cells):
        holder = cell.holder if cell.holder and cell.holder.owner else None
        mark = f' data-who="{_mark(holder)}"' if holder else ""
        yield f'<rect class="cell {cell.state}"{mark} x="{_STEP * place}"/>'
        if height := _HEIGHT if cell.state == CellState.UNHEALTHY else cell.use:
            top = _HEIGHT - height
            yield f'<rect class="use {cell.state}"{mark} x="{_STEP * place}" y="{top}" height="{height}"/>'


def _words(cell: Cell) -> str:
    word = _(_WORDS[cell.state])
    return word if cell.use is None or cell.state in (CellState.FREE, CellState.UNHEALTHY) else f"{word} {cell.use} %"


def _mark(holder: Holder) -> str:
    """Return a mark of the owner, from which the script derives a colour."""
    return f"{crc32(holder.owner.encode()):08x}"
