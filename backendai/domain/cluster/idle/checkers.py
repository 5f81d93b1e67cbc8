"""Idle checkers: finds those that apply to a session, and saves and deletes them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from backendai.base.core.errors import Conflict, UserError
from backendai.base.core.messages import Message
from backendai.domain.accounts.models import Project
from backendai.domain.activity.changes import delete_object, plain_value
from backendai.domain.activity.services import audit
from backendai.domain.cluster.models import IdleBinding, IdleChecker, ResourceGroup
from backendai.domain.cluster.slot_types import check_known
from backendai.scheduler.find_idle import Rule
from backendai.scheduler.idle_kinds import IDLE_KINDS

_SITE, _GROUP, _PROJECT = 1, 2, 3  # the higher is the more specific


@dataclass(frozen=True, slots=True)
class Places:
    """The places where a checker applies.

    ``except_groups`` and ``except_projects`` are excluded, even if a wider place includes them.
    """

    is_site_wide: bool = False
    groups: Collection[ResourceGroup] = ()
    projects: Collection[Project] = ()
    except_groups: Collection[ResourceGroup] = ()
    except_projects: Collection[Project] = ()


@dataclass(slots=True)
class Holding:
    """The active checkers with their places. It answers for any number of sessions without further queries."""

    checkers: Mapping[int, IdleChecker]
    bindings: Mapping[int, list[IdleBinding]]
    _rules: dict[int, Rule] = field(default_factory=dict)
    _known: dict[tuple[str, int, UUID], tuple[Rule, ...]] = field(default_factory=dict)

    def rules_for(self, session_type: str, group_id: int, project_id: UUID) -> tuple[Rule, ...]:
        """Return the rules that apply to sessions of this type there; equal questions get the same tuple.

        Of each kind the most specific apply: those of the project, else of the group, else of the whole site.
        """
        key = session_type, group_id, project_id
        if (known := self._known.get(key)) is None:
            known = self._known[key] = tuple(map(self._rule, self.checkers_for(*key)))
        return known

    def checkers_for(self, session_type: str, group_id: int, project_id: UUID) -> list[IdleChecker]:
        """Return the checkers that apply to sessions of this type there."""
        levels: dict[str, dict[int, list[IdleChecker]]] = defaultdict(lambda: defaultdict(list))
        for checker in self.checkers.values():
            level = _level_of(self.bindings.get(checker.pk, ()), group_id, project_id)
            if level and session_type in checker.session_types:
                levels[checker.kind][level].append(checker)
        return [checker for kind in sorted(levels) for checker in levels[kind][max(levels[kind])]]

    def _rule(self, checker: IdleChecker) -> Rule:
        return self._rules.setdefault(checker.pk, checker.rule)


def read_holding() -> Holding:
    """Return the active checkers with their places; two queries."""
    rows = IdleChecker.objects.filter(is_active=True, kind__in=IDLE_KINDS)  # a later version may have stored others
    checkers = {checker.pk: checker for checker in rows}
    bindings: dict[int, list[IdleBinding]] = defaultdict(list)
    for binding in IdleBinding.objects.filter(checker__is_active=True):
        bindings[binding.checker_id].append(binding)
    return Holding(checkers, bindings)


def places_of(checker: IdleChecker) -> Places:
    """Return the places where the checker applies."""
    rows = list(checker.bindings.select_related("resource_group", "project__domain"))
    return Places(
        any(row.applies and not row.resource_group and not row.project for row in rows),
        [row.resource_group for row in rows if row.applies and row.resource_group],
        [row.project for row in rows if row.applies and row.project],
        [row.resource_group for row in rows if not row.applies and row.resource_group],
        [row.project for row in rows if not row.applies and row.project],
    )


def checkers_of(group: ResourceGroup) -> list[IdleChecker]:
    """Return the checkers that are bound to the group itself."""
    return list(IdleChecker.objects.filter(bindings__resource_group=group, bindings__applies=True))


def write_checker(
    actor_id: UUID | None, checker: IdleChecker, values: Mapping[str, Any], places: Places | None = None
) -> IdleChecker:
    """Save these fields of a new or stored checker, and its places (None: unchanged); return the checker.

    Writes an audit entry. Warnings by its earlier rules are cancelled. Raises UserError that names the field, or
    Conflict for a taken name.
    """
    is_new = checker._state.adding
    kept = set(checker.thresholds)
    changes = {}
    for name, value in values.items():
        old = None if is_new else plain_value(getattr(checker, name))
        setattr(checker, name, value)
        if old != plain_value(value):
            changes[name] = [old, plain_value(value)]
    with transaction.atomic():
        _save(checker)
        check_known(checker.thresholds, field="thresholds", kept=kept)
        if places is not None:
            changes |= _set_places(checker, places)
        if changes:
            action = f"idle-checker.{'create' if is_new else 'change'}"
            audit(actor_id, action, "idle-checker", [checker.pk], name=checker.name, changes=changes)
    return checker


def choose_checkers(actor_id: UUID | None, group: ResourceGroup, chosen: Iterable[IdleChecker]) -> None:
    """Bind exactly these checkers to the group, with an audit entry."""
    with transaction.atomic():
        rows = IdleBinding.objects.filter(resource_group=group)
        before = {row.checker_id: row.checker.name for row in rows.filter(applies=True).select_related("checker")}
        after = {checker.pk: checker.name for checker in chosen}
        if before == after:
            return
        rows.filter(applies=True).exclude(checker__in=after).delete()
        rows.filter(applies=False, checker__in=after).update(applies=True)
        new = [pk for pk in after if pk not in before and not rows.filter(checker=pk).exists()]
        IdleBinding.objects.bulk_create(IdleBinding(checker_id=pk, resource_group=group) for pk in new)
        changes = {"idle_checkers": [sorted(before.values()), sorted(after.values())]}
        audit(actor_id, "resource-group.change", "resource-group", [group.pk], name=group.name, changes=changes)


def delete_checker(actor_id: UUID | None, checker: IdleChecker) -> None:
    """Delete a checker; its warnings are cancelled."""
    delete_object(actor_id, checker, "idle-checker")


def _level_of(bindings: Iterable[IdleBinding], group_id: int, project_id: UUID) -> int:
    """Return the level of the narrowest binding for this place; 0 if it excludes the place, or none exists."""
    found, applies = 0, False
    for binding in bindings:
        if binding.resource_group_id is None and binding.project_id is None:
            level = _SITE
        elif binding.resource_group_id == group_id:
            level = _GROUP
        elif binding.project_id == project_id:
            level = _PROJECT
        else:
            continue
        if level > found:
            found, applies = level, binding.applies
    return found if applies else 0


def _save(checker: IdleChecker) -> None:
    try:
        with transaction.atomic():
            checker.save()
    except ValidationError as error:
        name, messages = next(iter(error.message_dict.items()))
        raise UserError(messages[0], field=name, code="invalid-idle-checker") from error
    except IntegrityError as error:
        text = Message("An idle checker {checker} already exists.", checker=repr(checker.name))
        raise Conflict(text, field="name", code="name-taken") from error


def _set_places(checker: IdleChecker, places: Places) -> dict[str, list[Any]]:
    """Save the places of the checker; return the changes."""
    _refuse_both(places)
    before = _named(places_of(checker)) if checker.bindings.exists() else _named(Places())
    after = _named(places)
    if before == after:
        return {}
    checker.bindings.all().delete()
    rows = [IdleBinding(checker=checker)] if places.is_site_wide else []
    for applies, groups, projects in (
        (True, places.groups, places.projects),
        (False, places.except_groups, places.except_projects),
    ):
        rows += [IdleBinding(checker=checker, resource_group=group, applies=applies) for group in groups]
        rows += [IdleBinding(checker=checker, project=project, applies=applies) for project in projects]
    IdleBinding.objects.bulk_create(rows)
    return {name: [before[name], after[name]] for name in after if before[name] != after[name]}


def _refuse_both(places: Places) -> None:
    for name, wanted, unwanted in (
        ("except_groups", places.groups, places.except_groups),
        ("except_projects", places.projects, places.except_projects),
    ):
        keys = {one.pk for one in wanted}
        if both := [one for one in unwanted if one.pk in keys]:
            raise UserError("{both} is named twice: choose one.", both=both[0], field=name, code="invalid-idle-checker")


def _named(places: Places) -> dict[str, Any]:
    names = ("groups", "projects", "except_groups", "except_projects")
    return {"is_site_wide": places.is_site_wide} | {name: sorted(map(str, getattr(places, name))) for name in names}
