"""Resource groups: who may use which, which one is chosen for anyone who names none, and what a launch gets there."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from backendai.base.core.errors import Conflict, UserError
from backendai.domain.accounts.models import KeyPair
from backendai.domain.activity.models import AuditEntry
from backendai.domain.cluster.groups.changes import change_group, create_group, default_group_of, delete_group
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.services.launching.create import create_session
from backendai.domain.compute.spec import SessionSpec
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_image, make_session

pytestmark = pytest.mark.django_db


def launch(cast: Cast, **over: Any) -> Any:
    make_image()
    return create_session(cast.alice, SessionSpec(**({"image": "python"} | over)))


def names(groups: Any) -> list[str]:
    return sorted(group.name for group in groups)


def test_a_group_is_open_to_all_whom_its_lists_name_together(cast: Cast) -> None:
    lists: dict[str, dict[str, list[Any]]] = {
        "by-domain": {"domains": [cast.project.domain]},
        "by-project": {"projects": [cast.project]},
        "by-keys": {"key_pairs": [cast.alice.key_pairs.get()]},
        "by-all": {
            "domains": [cast.elsewhere.domain],
            "projects": [cast.project],
            "key_pairs": [cast.bob.key_pairs.get()],
        },
        "closed": {},
    }
    for name, values in lists.items():
        create_group(cast.dana, {"name": name, "is_public": False, **values})
    visible = ResourceGroup.objects.visible_to
    assert names(visible(cast.alice)) == ["by-all", "by-domain", "by-keys", "by-project"]
    assert names(visible(cast.bob)) == ["by-all", "by-domain", "by-project"]
    assert names(visible(cast.charlie)) == ["by-all"]
    assert len(visible(cast.dana)) == len(lists)
    usable = ResourceGroup.objects.usable_for
    assert names(usable(cast.project, cast.alice.key_pairs.get())) == ["by-all", "by-domain", "by-keys", "by-project"]
    assert names(usable(cast.project)) == ["by-all", "by-domain", "by-project"]
    KeyPair.objects.filter(user=cast.alice).update(is_active=False)
    assert "by-keys" not in names(visible(cast.alice))


def test_who_names_no_group_gets_the_default_or_the_only_one_and_else_must_choose(cast: Cast) -> None:
    aaa, zzz = make_group("aaa"), make_group("zzz", is_public=False)
    assert (default_group_of(cast.alice), launch(cast).resource_group) == (aaa, aaa)
    zzz.projects.add(cast.project)
    assert default_group_of(cast.alice) is None
    with pytest.raises(UserError, match="aaa, zzz") as refused:
        launch(cast)
    assert (refused.value.field, refused.value.code) == ("resource_group", "resource-group-needed")
    change_group(cast.dana, zzz, {"is_default": True})
    assert (default_group_of(cast.alice), launch(cast).resource_group) == (zzz, zzz)
    assert default_group_of(cast.charlie) == aaa, "the default is not open there"
    assert launch(cast, resource_group="aaa").resource_group == aaa


def test_there_is_one_default_at_most_whoever_writes_it(cast: Cast) -> None:
    first, second = make_group("first", is_default=True), make_group("second")
    second.is_default = True
    second.full_clean()
    second.save()
    first.refresh_from_db()
    assert not first.is_default
    create_group(cast.dana, {"name": "third", "is_default": True})
    assert names(ResourceGroup.objects.filter(is_default=True)) == ["third"]


def test_a_launch_gets_the_groups_defaults_where_it_says_nothing(cast: Cast) -> None:
    defaults = {"priority": 30, "batch_timeout": 7200, "shm": "256m", "environ": {"HF_HOME": "/data", "TZ": "UTC"}}
    make_group(session_defaults=defaults)
    plain = launch(cast, resources={"cpu": 1, "mem": "2g"})
    assert (plain.priority, plain.shm_bytes, plain.batch_timeout) == (30, 256 * 2**20, None)
    assert plain.environ == {"HF_HOME": "/data", "TZ": "UTC"}
    batch = {"session_type": "batch", "startup_command": "true", "resources": {"cpu": 1, "mem": "256m"}}
    usual = launch(cast, **batch)
    assert (usual.batch_timeout, usual.shm_bytes) == (timedelta(hours=2), 128 * 2**20), "at most half of the memory"
    own = launch(cast, **batch, priority=5, batch_timeout=timedelta(minutes=1), shm="64m", environ={"TZ": "CET"})
    assert (own.priority, own.batch_timeout, own.shm_bytes) == (5, timedelta(minutes=1), 64 * 2**20)
    assert own.environ == {"HF_HOME": "/data", "TZ": "CET"}


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ([], "names with their values"),
        ({"colour": "red"}, "Unknown default 'colour'"),
        ({"priority": 101}, "0 to 100"),
        ({"priority": True}, "0 to 100"),
        ({"batch_timeout": 0}, "more than 0"),
        ({"shm": "much"}, "Shared memory"),
        ({"shm": "64"}, "64 without a unit means bytes"),
        ({"environ": {"LD_PRELOAD": "x"}}, "is reserved"),
        ({"environ": {"A": 1}}, "The value of A"),
    ],
)
def test_defaults_that_make_no_sense_are_refused(wrong: Any, text: str) -> None:
    with pytest.raises(ValidationError, match=text) as refused:
        ResourceGroup(name="new", session_defaults=wrong).save()
    assert set(refused.value.message_dict) == {"session_defaults"}


def test_a_group_in_use_is_not_deleted_and_says_by_what(cast: Cast) -> None:
    group = make_group()
    make_agent(group=group)
    make_session(cast.alice)
    make_session(cast.alice)
    with pytest.raises(Conflict, match="1 agent, 2 compute sessions") as refused:
        delete_group(cast.dana.pk, group)
    assert refused.value.details["used_by"] == {"agent": 1, "compute sessions": 2}
    empty = create_group(cast.dana, {"name": "empty"})
    delete_group(cast.dana.pk, empty)
    actions = AuditEntry.objects.filter(target_type="resource-group").order_by("id").values_list("action", flat=True)
    assert list(actions) == ["resource-group.create", "resource-group.delete"]


def test_a_wrong_change_names_its_field_and_writes_nothing(cast: Cast) -> None:
    group, before = make_group(), ResourceGroup.objects.values().get()
    for values, field in (
        ({"sequence": "random", "description": "x"}, "sequence"),
        ({"name": "NO"}, "name"),
        ({"pull_timeout": timedelta(0)}, "pull_timeout"),
    ):
        with pytest.raises(UserError) as refused:
            change_group(cast.dana, ResourceGroup.objects.get(pk=group.pk), values)
        assert refused.value.field == field
    with pytest.raises(Conflict, match="already"):
        create_group(cast.dana, {"name": "default"})
    assert ResourceGroup.objects.values().get() == before
