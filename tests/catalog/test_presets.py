"""What a preset may say."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ValidationError

from backendai.base.core.errors import Conflict, UserError
from backendai.domain.activity.models import AuditEntry
from backendai.domain.catalog.models import ResourcePreset
from backendai.domain.catalog.presets import delete_preset, write_preset
from backendai.domain.compute.models import ComputeSession
from tests.cast import Cast
from tests.factories import make_group, make_session

pytestmark = pytest.mark.django_db
RIGHT: dict[str, Any] = {"name": "small", "slots": {"cpu": 1, "mem": "1g"}, "shm_bytes": 2**20}


@pytest.mark.parametrize(
    ("wrong", "field", "words"),
    [
        ({"name": ""}, "name", "cannot be blank"),
        ({"name": "a b"}, "name", "' ' is not allowed"),
        ({"name": "-a"}, "name", "Begin with a letter"),
        ({"name": "x" * 65}, "name", "64 characters"),
        ({"shm_bytes": 2**30}, "shm_bytes", "less than 1 GiB"),
        ({"shm_bytes": 0}, "shm_bytes", "more than 0"),
        ({"shm_bytes": 2**31, "slots": {"cpu": 1}}, "shm_bytes", "less than 1 GiB"),
        ({"slots": {}}, "resources", "cannot be blank"),
        ({"slots": {"cpu": 0}}, "resources", "at least one slot"),
        ({"slots": {"cpu": -1}}, "resources", "out of range"),
        ({"slots": {"cpu": "1.0001"}}, "resources", "too many decimals"),
        ({"slots": {"mem": "4 apples"}}, "resources", "not a size"),
        ({"slots": {"cpu": 1, "shm": "1g"}}, "resources", "field of its own"),
        ({"slots": {"cpu": 1, "cuda.device": "0.5"}}, "resources", "whole devices"),
        ({"slots": ["cpu"]}, "resources", "slots with their amounts"),
    ],
)
def test_it_names_the_field_that_is_wrong_and_writes_nothing(wrong: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as raised:
        write_preset(None, ResourcePreset(), RIGHT | wrong)
    assert raised.value.field == field
    with pytest.raises(ValidationError):
        ResourcePreset(**(RIGHT | wrong)).save()
    assert not ResourcePreset.objects.exists()
    assert not AuditEntry.objects.filter(target_type="preset").exists()


def test_a_name_is_unique_in_its_group_and_among_those_for_all(cast: Cast) -> None:
    group = make_group()
    first = write_preset(cast.dana.pk, ResourcePreset(), RIGHT)
    own = write_preset(cast.dana.pk, ResourcePreset(), RIGHT | {"resource_group": group})
    for taken in ({}, {"resource_group": group}):
        with pytest.raises(Conflict, match="'small' for") as raised:
            write_preset(cast.dana.pk, ResourcePreset(), RIGHT | taken)
        assert raised.value.code == "name-taken"
    write_preset(cast.dana.pk, own, {"slots": {"cpu": 2}, "shm_bytes": None})
    delete_preset(cast.dana.pk, first)
    trail = AuditEntry.objects.filter(target_type="preset").order_by("at", "pk")
    assert [entry.action for entry in trail] == ["preset.create", "preset.create", "preset.change", "preset.delete"]
    assert trail[2].details["changes"]["shm_bytes"] == [2**20, None]
    assert ResourcePreset.objects.get().slots == {"cpu": "2"}


def test_its_shared_memory_reaches_the_session(cast: Cast) -> None:
    make_group()
    write_preset(None, ResourcePreset(), RIGHT)
    assert make_session(cast.alice, preset="small", resources={}).shm_bytes == 2**20
    assert make_session(cast.alice, preset="small", resources={}, shm="2m").shm_bytes == 2**21
    write_preset(None, ResourcePreset.objects.get(), {"shm_bytes": 2**29})
    with pytest.raises(UserError, match="Shared memory is part"):
        make_session(cast.alice, preset="small", resources={"mem": "256m"})
    assert ComputeSession.objects.count() == 2
