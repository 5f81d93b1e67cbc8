"""Idle checkers: what they may say, and which of them hold where."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from backendai.base.core.errors import Conflict, UserError
from backendai.domain.activity.models import AuditEntry
from backendai.domain.cluster.groups.changes import delete_group
from backendai.domain.cluster.idle.checkers import (
    Places,
    choose_checkers,
    delete_checker,
    places_of,
    read_holding,
    write_checker,
)
from backendai.domain.cluster.models import IdleBinding, IdleChecker
from tests.cast import Cast
from tests.factories import make_group

pytestmark = pytest.mark.django_db


def make_checker(name: str = "quiet", places: Places | None = None, **over: Any) -> IdleChecker:
    return write_checker(None, IdleChecker(), {"name": name} | over, places)


def names_for(cast: Cast, group: str = "default", session_type: str = "interactive", **over: Any) -> list[str]:
    project = over.get("project", cast.project)
    return [rule.name for rule in read_holding().rules_for(session_type, make_group(group).pk, project.pk)]


def test_it_holds_nowhere_until_it_is_bound(cast: Cast) -> None:
    checker = make_checker()
    assert names_for(cast) == []
    write_checker(cast.dana.pk, checker, {}, Places(is_site_wide=True))
    assert names_for(cast) == ["quiet"]
    assert names_for(cast, session_type="batch") == []
    write_checker(cast.dana.pk, checker, {"session_types": ["batch"]})
    assert (names_for(cast), names_for(cast, session_type="batch")) == ([], ["quiet"])
    write_checker(cast.dana.pk, checker, {"is_active": False})
    assert names_for(cast, session_type="batch") == []


def test_of_one_kind_the_most_specific_win_and_an_exception_beats_what_is_wider(cast: Cast) -> None:
    gpu = make_group("gpu")
    make_checker("site", Places(is_site_wide=True, except_projects=[cast.elsewhere]))
    make_checker("group", Places(groups=[gpu]))
    make_checker("project", Places(projects=[cast.elsewhere]), limit=timedelta(hours=9))
    make_checker("longest", Places(is_site_wide=True, except_groups=[gpu]), kind="session-lifetime")
    assert names_for(cast) == ["site", "longest"]
    assert names_for(cast, "gpu") == ["group"]
    assert names_for(cast, "gpu", project=cast.elsewhere) == ["project"]
    assert names_for(cast, project=cast.elsewhere) == ["project", "longest"]


def test_a_kind_of_a_later_version_ends_nothing(cast: Cast) -> None:
    make_checker(places=Places(is_site_wide=True))
    IdleChecker.objects.update(kind="weekday")
    assert names_for(cast) == []


def test_asking_for_many_sessions_reads_the_rules_once(cast: Cast, django_assert_num_queries: Any) -> None:
    make_checker("site", Places(is_site_wide=True))
    group = make_group()
    with django_assert_num_queries(2):
        holding = read_holding()
        found = [holding.rules_for("interactive", group.pk, cast.project.pk) for _ in range(100)]
    assert all(one is found[0] for one in found)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("name", {"name": "two words"}),
        ("limit", {"limit": timedelta(seconds=59)}),
        ("grace", {"grace": timedelta(seconds=-1)}),
        ("warning", {"warning": timedelta(0)}),
        ("warning", {"limit": timedelta(hours=1), "warning": timedelta(minutes=31)}),
        ("thresholds", {"kind": "utilization"}),
        ("thresholds", {"kind": "utilization", "thresholds": {"cpu": 0}}),
        ("thresholds", {"kind": "utilization", "thresholds": {"cpu": 101}}),
        ("thresholds", {"kind": "utilization", "thresholds": {"c p u": 5}}),
        ("thresholds", {"kind": "utilization", "thresholds": ["cpu"]}),
        ("thresholds", {"kind": "session-lifetime", "thresholds": {"cpu": 5}}),
        ("limit", {"kind": "utilization", "thresholds": {"cpu": 5}, "limit": timedelta(hours=25)}),
        ("session_types", {"session_types": []}),
        ("session_types", {"session_types": ["nightly"]}),
        ("extension", {"extension": timedelta(0)}),
        ("max_extensions", {"max_extensions": 101}),
        ("kind", {"kind": "weekday"}),
    ],
)
def test_what_cannot_be_carried_out_is_refused_by_field(cast: Cast, field: str, values: dict[str, Any]) -> None:
    with pytest.raises(UserError) as caught:
        make_checker(**({"name": "quiet"} | values))
    assert (caught.value.field, caught.value.code) == (field, "invalid-idle-checker")
    with pytest.raises(ValidationError):
        IdleChecker(**({"name": "quiet"} | values)).save()
    assert not IdleChecker.objects.exists()


def test_a_name_is_taken_once_and_a_place_named_twice_is_refused(cast: Cast) -> None:
    make_checker()
    with pytest.raises(Conflict):
        make_checker()
    group = make_group()
    with pytest.raises(UserError) as caught:
        make_checker("other", Places(groups=[group], except_groups=[group]))
    assert caught.value.field == "except_groups"
    assert IdleChecker.objects.count() == 1


def test_only_what_decides_makes_it_another_rule(cast: Cast) -> None:
    checker = make_checker(kind="utilization", thresholds={"cpu": 5, "cuda.device": 2.5})
    sign = checker.rule.sign
    assert checker.rule.thresholds == {"cpu": 0.05, "cuda.device": 0.025}
    write_checker(None, checker, {"name": "renamed", "description": "x", "max_extensions": 1})
    assert checker.rule.sign == sign
    for change in (
        {"limit": timedelta(hours=2)},
        {"warning": timedelta(minutes=16)},
        {"match": "any"},
        {"thresholds": {"cpu": 6}},
    ):
        write_checker(None, checker, change)
        assert checker.rule.sign != sign
        sign = checker.rule.sign


def test_changes_are_in_the_audit_trail_with_old_and_new(cast: Cast) -> None:
    group = make_group()
    checker = write_checker(cast.dana.pk, IdleChecker(), {"name": "quiet"}, Places(groups=[group]))
    write_checker(cast.dana.pk, checker, {"limit": timedelta(hours=2)}, Places(is_site_wide=True))
    write_checker(cast.dana.pk, checker, {"limit": timedelta(hours=2)}, Places(is_site_wide=True))
    delete_checker(cast.dana.pk, checker)
    entries = AuditEntry.objects.filter(target_type="idle-checker").order_by("pk")
    assert [entry.action for entry in entries] == ["idle-checker.create", "idle-checker.change", "idle-checker.delete"]
    assert entries[1].details["changes"] == {
        "limit": ["1:00:00", "2:00:00"],
        "is_site_wide": [False, True],
        "groups": [["default"], []],
    }


def test_a_group_chooses_its_checkers_and_takes_its_bindings_with_it(cast: Cast) -> None:
    gpu = make_group("gpu")
    one, two = make_checker("one"), make_checker("two", Places(is_site_wide=True, except_groups=[gpu]))
    choose_checkers(cast.dana.pk, gpu, [one, two])
    assert names_for(cast, "gpu") == ["one", "two"]
    assert places_of(two).groups == [gpu]
    choose_checkers(cast.dana.pk, gpu, [two])
    choose_checkers(cast.dana.pk, gpu, [two])
    assert names_for(cast, "gpu") == ["two"]
    entries = AuditEntry.objects.filter(action="resource-group.change").order_by("pk")
    assert [entry.details["changes"]["idle_checkers"] for entry in entries] == [
        [[], ["one", "two"]],
        [["one", "two"], ["two"]],
    ]
    delete_group(cast.dana.pk, gpu)
    assert list(IdleBinding.objects.values_list("checker__name", "resource_group")) == [("two", None)]
