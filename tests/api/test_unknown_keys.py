"""A name that nobody knows is refused wherever it would have no effect, with the closest known one."""

from __future__ import annotations

from typing import Any

import pytest

from backendai.base.core.errors import UserError
from backendai.domain.accounts.models import ResourcePolicy
from backendai.domain.catalog.models import Image
from backendai.domain.cluster.groups.changes import change_group
from backendai.domain.cluster.models import SlotType
from backendai.domain.cluster.slot_types import check_known
from tests.api.callers import LAUNCH, SESSIONS, Caller
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_image

pytestmark = pytest.mark.django_db
API = "/api/v1/"
AMOUNTS = {"cpus": 2, "mem": "1g"}
ARRAY = {"image": "python", "startup_command": "true", "array": 2}
ENDPOINT = {"name": "chat", "image": "python", "command": "serve", "maximum": 2}
IDLE = {"name": "idle", "kind": "utilization", "limit": "1h", "thresholds": {"cpus": 5}}
NEW_IMAGE = {"name": "other", "reference": "cr.example/other:1"}
# Where a person writes slots: the address, the body, and the field that the answer names.
SLOTS: list[tuple[str, dict[str, Any], str]] = [
    ("policies/", {"name": "p", "slots": AMOUNTS}, "slots"),
    ("policies/", {"name": "p", "max_pending_slots": AMOUNTS}, "max_pending_slots"),
    ("presets/", {"name": "p", "resources": AMOUNTS}, "resources"),
    ("idle-checkers/", IDLE, "thresholds"),
    ("sessions/", LAUNCH | {"resources": AMOUNTS}, "resources.cpus"),
    ("session-preview/", LAUNCH | {"resources": AMOUNTS}, "resources.cpus"),
    ("runs/", {"name": "sweep", "document": ARRAY | {"resources": AMOUNTS}}, "resources.cpus"),
    ("endpoints/", ENDPOINT | {"resources": AMOUNTS}, "resources.cpus"),
]


@pytest.fixture
def dana(cast: Cast) -> Caller:
    make_agent()
    make_image()
    return Caller(cast.dana)


def assert_refused(answer: Any, field: str) -> None:
    assert answer.status_code == 400, answer.content
    body = answer.json()
    assert (body["code"], body["field"]) == ("unknown-slot", field), body
    assert body["detail"].startswith("Unknown slot cpus. Known: cpu, ") and body["detail"].endswith("mean cpu?"), body


@pytest.mark.parametrize(("address", "body", "field"), SLOTS)
def test_a_misspelt_slot_is_refused_with_the_closest_one(
    dana: Caller, address: str, body: dict[str, Any], field: str
) -> None:
    assert_refused(dana.post(API + address, body), field)


def test_a_misspelt_slot_of_something_stored_is_refused_too(dana: Caller, cast: Cast) -> None:
    policy, image = ResourcePolicy.objects.create(name="p"), Image.objects.get()
    assert_refused(dana.patch(f"{API}policies/{policy.pk}/", {"slots": AMOUNTS}), "slots")
    for field in ("minimum", "maximum"):
        assert_refused(dana.patch(f"{API}images/{image.pk}/", {field: AMOUNTS}), field)
    assert_refused(dana.patch(f"{API}site-settings/", {"container_caps": AMOUNTS}), "container_caps")
    with pytest.raises(UserError, match="Did you mean cpu") as refused:
        change_group(cast.dana, make_group(), {"slot_order": ["cpus", "mem"]})
    assert refused.value.field == "slot_order"


def test_a_word_for_gpus_leads_to_their_slot() -> None:
    with pytest.raises(UserError, match=r"Did you mean cuda\.device"):
        check_known(["gpu"], field="slots")


def test_slots_that_agents_offered_and_slots_stored_earlier_are_known(dana: Caller) -> None:
    SlotType.objects.create(name="tpu.v4", display_name="TPU")
    check_known(["cpu", "mem", "cuda.shares", "cuda.mig-1g.10gb", "tpu.v4"], field="slots")
    policy = ResourcePolicy.objects.create(name="old", slots={"npu": "1"})
    assert dana.patch(f"{API}policies/{policy.pk}/", {"slots": {"npu": "2"}}).status_code == 200
    with pytest.raises(UserError, match="Unknown slot gaudi"):
        check_known(["gaudi"], field="slots")


# Bodies with a misspelt key at each depth where one can be written, and the key that was meant.
KEYS: list[tuple[str, dict[str, Any], str]] = [
    ("policies/", {"name": "p", "max_session": 3}, "max_sessions"),
    ("presets/", {"name": "p", "resource": {"cpu": 1}}, "resources"),
    ("idle-checkers/", IDLE | {"threshold": {}}, "thresholds"),
    ("sessions/", LAUNCH | {"resource": {}}, "resources"),
    ("runs/", {"name": "s", "document": ARRAY | {"at_onc": 2}}, "at_once"),
    ("runs/", {"name": "s", "document": ARRAY | {"retry": {"time": 2}}}, "times"),
    ("endpoints/", ENDPOINT | {"resources": {"cpu": 1}, "minimun": 1}, "minimum"),
]


@pytest.mark.parametrize(("address", "body", "meant"), KEYS)
def test_a_misspelt_key_is_refused_with_the_closest_one(
    dana: Caller, address: str, body: dict[str, Any], meant: str
) -> None:
    answer = dana.post(API + address, body)
    assert answer.status_code == 400, answer.content
    assert meant in answer.content.decode().replace(SESSIONS, ""), answer.content
