"""A launch request as a document: nothing is lost on the way there and back, and nothing unknown gets in."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from backendai.base.core.errors import Conflict, UserError
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.launching.create import create_session
from backendai.domain.compute.services.launching.recent import parameters_of
from backendai.domain.compute.spec import LaunchFile, MountRequest, RoleSpec, SessionSpec
from backendai.domain.compute.spec_document import digest_of, document_of, kept_document, spec_of
from tests.api.callers import SESSIONS, Caller
from tests.cast import Cast
from tests.factories import make_group, make_image, make_session

FULL = SessionSpec(
    image="python",
    name="night",
    session_type="batch",
    resources={"cpu": 2, "mem": "1g"},
    project="vision",
    environ={"EPOCHS": "3", "API_KEY": "secret-text"},
    startup_command="true",
    preopen_ports=(8080,),
    starts_at=datetime(2031, 1, 2, 3, 4, tzinfo=UTC),
    cluster_mode="multi-node",
    priority=0,
    batch_timeout=timedelta(hours=2),
    depends_on=("other",),
    launch_id=UUID(int=7),
    retry_on_agent_loss=True,
    files=(LaunchFile("a.py", "print()"),),
    mounts=(MountRequest("data", target="/data", rights="view"),),
    roles={"worker": RoleSpec(count=2, image="worker", environ={"TOKEN": "secret-text"}, mounts=(MountRequest("x"),))},
)


@pytest.mark.parametrize(
    "spec", [FULL, SessionSpec(image="python"), replace(FULL, batch_timeout=timedelta(seconds=0.5))]
)
def test_a_document_of_json_describes_the_same_request(spec: SessionSpec) -> None:
    again = spec_of(json.loads(json.dumps(document_of(spec))))
    assert document_of(again) == document_of(spec)
    assert digest_of(again) == digest_of(spec)
    assert (again.batch_timeout, again.starts_at, again.roles.keys()) == (
        spec.batch_timeout,
        spec.starts_at,
        spec.roles.keys(),
    )


def test_what_is_usual_is_left_out_and_the_names_are_those_of_rest() -> None:
    assert document_of(SessionSpec(image="python")) == {"version": 1, "image": "python"}
    assert document_of(FULL)["type"] == "batch" and document_of(FULL)["priority"] == 0


def test_a_kept_document_has_no_secrets() -> None:
    text = json.dumps(kept_document(FULL))
    assert "secret-text" not in text and "print()" not in text
    assert kept_document(FULL)["environ"] == {"EPOCHS": "3", "API_KEY": None}
    assert kept_document(FULL)["files"] == ["a.py"]


@pytest.mark.parametrize("field", ["image", "environ", "roles", "files", "priority"])
def test_requests_that_differ_have_other_digests(field: str) -> None:
    changed: dict[str, Any] = {"image": "other", "environ": {}, "roles": {}, "files": (), "priority": 1}
    assert digest_of(replace(FULL, **{field: changed[field]})) != digest_of(FULL)


@pytest.mark.parametrize(
    ("document", "field", "said"),
    [
        ({"image": "x", "imge": 1}, "imge", "use image"),
        ({"image": "x", "session_type": "batch", "version": 1}, "session_type", "session_type"),
        ({"image": "x", "mounts": [{"folder": "a", "traget": "/x"}]}, "mounts.traget", "use target"),
        ({"image": "x", "roles": {"worker": {"sice": 2}}}, "roles.worker.sice", "image"),
        ({"image": "x", "roles": {"worker": 2}}, "roles.worker", "keys"),
        ({"image": "x", "version": 2}, "version", "version 1"),
        ({"image": "x", "version": "1"}, "version", "Version"),
        ({"image": "x", "cluster_size": "many"}, "cluster_size", "integer"),
        ({"image": "x", "roles": 3}, "roles", "dictionary"),
        ({"image": "x", "mounts": 3}, "mounts", "Sequence"),
        ({}, "image", "required"),
    ],
)
def test_what_is_wrong_is_named(document: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        spec_of(document if "version" in document else {"version": 1, **document})
    assert refused.value.field == field
    assert said in refused.value.message


@pytest.mark.django_db
def test_a_session_keeps_its_document_and_can_be_started_again_from_it(cast: Cast) -> None:
    make_image("worker")
    roles = {"worker": RoleSpec(count=2, image="worker", resources={"cpu": 2, "mem": "1g"})}
    session = make_session(cast.alice, roles=roles)
    again = spec_of(parameters_of(ComputeSession.objects.get()))
    other = create_session(cast.alice, again)
    assert session.spec["roles"] == {"worker": {"count": 2, "image": "worker", "resources": {"cpu": 2, "mem": "1g"}}}
    shapes = [[(one.hostname, one.slots, one.image_id) for one in each.kernels.all()] for each in (session, other)]
    assert shapes[0] == shapes[1] and len(shapes[0]) == 3


@pytest.mark.django_db
def test_rest_takes_a_document_and_names_the_nearest_key(cast: Cast) -> None:
    make_group()
    make_image()
    alice = Caller(cast.alice)
    assert alice.post(SESSIONS, document_of(SessionSpec(image="python"))).status_code == 201
    wrong = alice.post(SESSIONS, {"image": "python", "imge": "x"})
    assert wrong.status_code == 400 and "use image" in str(wrong.json())
    assert alice.post(SESSIONS, {"image": "python", "version": 2}).status_code == 400


@pytest.mark.django_db
def test_one_key_with_another_request_is_refused(cast: Cast) -> None:
    make_group()
    make_image()
    first = create_session(cast.alice, SessionSpec(image="python"), idempotency_key="k")
    assert create_session(cast.alice, SessionSpec(image="python"), idempotency_key="k") == first
    with pytest.raises(Conflict):
        create_session(cast.alice, SessionSpec(image="python", cluster_size=2), idempotency_key="k")
