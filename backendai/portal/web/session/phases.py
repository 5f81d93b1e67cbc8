"""The start of a session as a bar of phases, with actual and usual durations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from backendai.base.core.slots import format_size
from backendai.base.texts.translation import gettext as _
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.services.records.start_times import STAGES, UsualStart, stage_seconds, usual_start
from backendai.domain.compute.status import STARTING, Status

_ORDER = (Status.SCHEDULED, Status.PULLING, Status.CREATING, Status.RUNNING)
_NARROWEST = 6.0  # of 100: a phase of milliseconds is still seen
_LONG_SECONDS, _LONG_TIMES = 5.0, 2.0  # when a phase is said to take longer than usual


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a start.

    ``state`` is done, now or next; ``took`` and ``usual`` are durations as text, empty if unknown; ``since``: when the
    current phase began. ``x``, ``width`` and ``filled`` are in per cent of the bar.
    """

    word: str
    state: str
    took: str
    usual: str
    since: datetime | None
    x: str
    width: str
    filled: str


@dataclass(frozen=True, slots=True)
class Start:
    """A start of a session: its phases, and the current state in a sentence.

    Has a warning if it takes long (else empty), the pulled share of the image (0–100, None: unknown), the usual
    duration of a whole start, and the number of starts behind it.
    """

    phases: list[Phase]
    now: str
    slow: str
    percent: int | None
    usual: str
    starts: int


def start_of(session: ComputeSession, kernels: Sequence[Kernel], *, now: datetime) -> Start | None:
    """Return the progress of the session's start, from the kernel that is furthest behind.

    None if the session is not starting. One query.
    """
    if session.status not in STARTING:
        return None
    behind = [kernel for kernel in kernels if kernel.status in _ORDER]
    if not behind:
        return None
    kernel = min(behind, key=lambda one: (_ORDER.index(Status(one.status)), one.changed_at))
    usual = usual_start(session.image_id, session.resource_group_id)
    at = _ORDER.index(Status(kernel.status))
    elapsed = max(0.0, (now - kernel.changed_at).total_seconds())
    took = stage_seconds(kernel.steps)
    expected = usual.otherwise.get(STAGES[at], 0.0) if usual and at < len(STAGES) else 0.0
    is_slow = expected and elapsed > _LONG_SECONDS and elapsed > _LONG_TIMES * expected
    return Start(
        phases=_phases(kernel, at, took, usual, elapsed),
        now=_doing(kernel),
        slow=_("That usually takes %(time)s.") % {"time": seconds_text(expected)} if is_slow else "",
        percent=None if kernel.progress is None else round(100 * kernel.progress),
        usual=seconds_text(usual.total) if usual else "",
        starts=usual.starts if usual else 0,
    )


def seconds_text(seconds: float) -> str:
    """Return a duration as text: ``0.4 s``, ``12 s``, ``3 min 20 s``."""
    if seconds < 60:
        return _("%(number)s s") % {"number": f"{seconds:.1f}" if seconds < 10 else f"{seconds:.0f}"}
    minutes, rest = divmod(round(seconds), 60)
    return _("%(minutes)s min %(seconds)s s") % {"minutes": minutes, "seconds": rest}


def _phases(
    kernel: Kernel, at: int, took: Mapping[str, float], usual: UsualStart | None, elapsed: float
) -> list[Phase]:
    lengths = [max(took.get(stage, 0.0), usual.seconds[stage] if usual else 0.0) for stage in STAGES]
    if at < len(STAGES):
        lengths[at] = max(lengths[at], elapsed)
    widths = _widths(lengths)
    words = (_("Scheduled"), _("Pulling image"), _("Creating"))
    return [
        Phase(
            word=words[place],
            state="done" if place < at else "now" if place == at else "next",
            took=seconds_text(took[stage]) if stage in took else "",
            usual=_usually(usual, stage),
            since=kernel.changed_at if place == at else None,
            x=f"{sum(widths[:place]):.2f}",
            width=f"{widths[place]:.2f}",
            filled=f"{_filled(place, at, kernel, lengths[place], elapsed) * widths[place]:.2f}",
        )
        for place, stage in enumerate(STAGES)
    ]


def _widths(lengths: Sequence[float]) -> list[float]:
    """Return the widths of the phases in per cent of the bar, each wide enough to be seen."""
    whole = sum(lengths)
    if not whole:
        return [100 / len(lengths)] * len(lengths)
    room = 100 - _NARROWEST * len(lengths)
    return [_NARROWEST + room * length / whole for length in lengths]


def _filled(place: int, at: int, kernel: Kernel, length: float, elapsed: float) -> float:
    if place != at:
        return 1.0 if place < at else 0.0
    if kernel.progress is not None:
        return min(1.0, max(0.0, kernel.progress))
    return min(0.95, elapsed / length) if length else 0.0


def _usually(usual: UsualStart | None, stage: str) -> str:
    if usual is None:
        return ""
    if not usual.seconds[stage]:
        otherwise = usual.otherwise[stage]
        text = _("usually skipped, else %(time)s") if otherwise else _("usually skipped")
        return text % {"time": seconds_text(otherwise)}
    return _("usually %(time)s") % {"time": seconds_text(usual.seconds[stage])}


def _doing(kernel: Kernel) -> str:
    node = kernel.agent.name if kernel.agent else ""
    if kernel.status == Status.PULLING:
        if kernel.image_bytes:
            far = {"done": format_size(kernel.fetched_bytes or 0), "total": format_size(kernel.image_bytes)}
            return _("Agent %(node)s is pulling the image, %(done)s of %(total)s") % {"node": node, **far}
        return _("Agent %(node)s is pulling the image") % {"node": node}
    return {
        Status.SCHEDULED: _("Sent to agent %(node)s"),
        Status.CREATING: _("Agent %(node)s is creating the kernel"),
    }.get(Status(kernel.status), _("Waiting for the remaining kernels")) % {"node": node}
