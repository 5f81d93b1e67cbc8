"""The review of a launch: the cards of the last step, each with its errors.

The form and the services' check are the only validators. So an error shown here is exactly what a launch would reject.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, cast

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from backendai.base.core.errors import UserError
from backendai.base.core.secret_names import looks_secret
from backendai.base.core.session_kinds import KINDS, SessionKind
from backendai.base.core.slots import Slots
from backendai.domain.accounts.models import User
from backendai.domain.catalog.models import Image
from backendai.domain.compute.services.launching.create import check_launch
from backendai.domain.compute.services.requests.check import Checked
from backendai.domain.compute.services.requests.mounts import ResolvedMount
from backendai.domain.compute.services.requests.roles import CheckedRole
from backendai.domain.storage.status import Rights
from backendai.portal.web.frame.kind_words import words_of
from backendai.portal.web.launch.field_table import AMOUNT, DATA, LAUNCH_FIELDS, NETWORK, RESOURCES, REVIEW, TYPE
from backendai.portal.web.launch.form import LaunchForm
from backendai.portal.web.launch.steps import step_of
from backendai.portal.web.session.idle import launch_rules

_HIDDEN = "••••••"
_LAUNCHERS = frozenset({"mpirun", "mpiexec", "mpiexec.hydra", "prterun", "horovodrun"})
_CARDS = {
    "type": (_("Session type"), TYPE),
    "environments": (_("Image"), RESOURCES),
    "allocation": (_("Resource allocation"), RESOURCES),
    "data": (_("Data & storage"), DATA),
    "network": (_("Network"), NETWORK),
    "launch": (_("Launch"), REVIEW),
}


class Fault(NamedTuple):
    """An error: the form's field (``__all__``: none), its label and the reason.

    For a field with rows also the row's number, and the part of the row if it has several. ``is_missing``: the field
    needs a value and has none.
    """

    field: str
    label: str
    message: str
    row: int | None
    part: str = ""
    is_missing: bool = False

    @property
    def step(self) -> int:
        """The number of the step that has the field."""
        return step_of(self.field)


@dataclass(frozen=True, slots=True)
class Card:
    """One part of the review; ``step`` is the step in which it is edited."""

    title: str | Promise
    step: int
    faults: Sequence[Fault]


class Review:
    """A checked form; ``checked`` is None if it has errors."""

    def __init__(self, form: LaunchForm, checked: Checked | None) -> None:
        self.form = form
        self.checked = checked
        self.data: dict[str, Any] = getattr(form, "cleaned_data", {})
        self.faults = list(_faults(form))
        self.cards = {
            key: Card(title, step, [fault for fault in self.faults if _card_of(fault.field) == key])
            for key, (title, step) in _CARDS.items()
        }

    @property
    def wrong_steps(self) -> str:
        """The numbers of the steps with errors, separated by spaces."""
        return " ".join(str(number) for number in sorted({fault.step for fault in self.faults}))

    @property
    def first(self) -> Fault:
        """The error to show when there is room for one: a wrong value before a missing one."""
        return next((fault for fault in self.faults if not fault.is_missing), self.faults[0])

    @property
    def is_incomplete(self) -> bool:
        """Whether values are missing, and no value is wrong."""
        return bool(self.faults) and all(fault.is_missing for fault in self.faults)

    @property
    def others(self) -> int:
        """The number of errors besides the first."""
        return max(0, len(self.faults) - 1)

    @property
    def kind(self) -> SessionKind | None:
        """The chosen kind of session; None for an unknown one."""
        return KINDS.get(str(self.form["session_type"].value()))

    @property
    def kind_title(self) -> Any:
        """The title of the kind on pages."""
        return words_of(self.kind.name).title if self.kind else ""

    @property
    def image(self) -> Image | None:
        """The chosen image."""
        return self.checked.image if self.checked else cast(Image | None, self.data.get("image"))

    @property
    def variables(self) -> list[tuple[str, str]]:
        """The environment variables, also those of the group; values that look secret are hidden."""
        rows = self.checked.spec.environ.items() if self.checked else self.form.typed_variables()
        return [(name, _HIDDEN if value and looks_secret(name, value) else value) for name, value in rows]

    @property
    def mounts(self) -> list[ResolvedMount]:
        """The folders that the session mounts, automatic ones last; empty if the form has errors."""
        return self.checked.mounts if self.checked else []

    @property
    def is_read_only(self) -> bool:
        """Whether folders are selected and none of them can be written. Automatic mounts do not count."""
        rights = {mount.rights for mount in self.mounts if not mount.is_automatic}
        return rights == {Rights.VIEW}

    @property
    def timeout(self) -> timedelta | None:
        """The time limit of a batch session, from the form or the group."""
        found = self.checked.spec.batch_timeout if self.checked else self.data.get("batch_timeout")
        return cast(timedelta | None, found)

    @property
    def idle_rules(self) -> list[str] | None:
        """The rules of the idle checkers that would apply, a sentence each; None while group or project is unknown."""
        kind, group, project = (self.data.get(name) for name in ("session_type", "resource_group", "project"))
        return launch_rules(kind, group.pk, project.pk, self.amounts) if kind and group and project else None

    @property
    def amounts(self) -> Slots | None:
        """The amounts of each kernel; of a form with errors the entered ones, None if unreadable."""
        return self.checked.slots if self.checked else self.form.readable_amounts()

    @property
    def kernels(self) -> int:
        """The number of kernels of each session."""
        if self.checked:
            return sum(role.count for role in self.checked.roles)
        roles = self.data.get("roles") or {}
        return sum(role.count for role in roles.values()) or int(self.data.get("cluster_size") or 1)

    @property
    def runs_too_often(self) -> bool:
        """Whether each kernel would run a program that itself starts programs in all of them."""
        program = str(self.data.get("startup_command") or "").split(maxsplit=1)[:1]
        is_launcher = bool(program) and program[0].rpartition("/")[2] in _LAUNCHERS
        runs = self.kind is not None and self.kind.runs_program and not self.data.get("command_in")
        return runs and is_launcher and self.kernels > 1 and not self.data.get("roles")

    @property
    def sessions(self) -> int:
        """The number of sessions."""
        return self.form.how_many() if self.checked else int(self.data.get("count") or 1)

    @property
    def elements(self) -> int:
        """The number of sessions that the array makes; 0 for none."""
        return self.form.elements() if self.data else 0

    @property
    def number(self) -> int:
        """The number of kernels of all sessions."""
        return self.kernels * (self.elements or self.sessions)

    @property
    def of_one(self) -> Slots | None:
        """The amounts of one session, or of one element of an array."""
        if self.checked:
            return self.checked.total
        amounts = self.amounts
        return None if amounts is None else amounts * self.kernels

    @property
    def total(self) -> Slots | None:
        """The amounts of all kernels of all sessions, or of all elements of an array."""
        one = self.of_one
        return None if one is None else one * (self.elements or self.sessions)

    @property
    def roles(self) -> Sequence[CheckedRole]:
        """The roles of a cluster session whose kernels differ; empty if the form has errors."""
        return self.checked.roles if self.checked and self.data.get("roles") else ()


def review_of(form: LaunchForm, user: User) -> Review:
    """Return the review of this form for the user. Errors of the services are added to the form."""
    checked = None
    if form.is_bound and form.errors is not None:
        form.demand_command()
    if form.is_valid():
        try:
            checked = check_launch(user, form.spec(), form.how_many())
        except UserError as error:
            form.refuse(error)
    if form.is_bound and checked is None:  # the services tell of the first fault alone
        form.demand_names()
    return Review(form, checked)


def _faults(form: LaunchForm) -> Iterator[Fault]:
    for name, errors in form.wrong_in_order():
        for error in errors:
            params = error.params or {}
            place = (params.get("row"), params.get("part", ""))
            yield Fault(name, _label(form, name), error.messages[0], *place, error.code == "required")


def _label(form: LaunchForm, name: str) -> str:
    label = form.fields[name].label if name in form.fields else ""
    return str(label or ("" if name == "__all__" else name.capitalize()))


def _card_of(field: str) -> str:
    step, row = step_of(field), LAUNCH_FIELDS.get(field, AMOUNT)
    if step == RESOURCES:
        return "environments" if row.of_environment else "allocation"
    return next(key for key, (_title, number) in _CARDS.items() if number == step)
