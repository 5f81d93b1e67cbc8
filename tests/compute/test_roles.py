"""Kernels of one session that differ: each starts its own image, with its own amounts, variables, command, folders."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backendai.agent.backends.simulated.backend import SimulatedBackend
from backendai.base.core.errors import UserError
from backendai.base.core.slots import Slots
from backendai.domain.accounts.models import ResourcePolicy
from backendai.domain.compute.models import Allocation, ComputeSession
from backendai.domain.compute.services.agents.kernel_specs import spec_for
from backendai.domain.compute.services.agents.manifests import read_manifest
from backendai.domain.compute.services.agents.node_view import WorkRequest, work_for_each
from backendai.domain.compute.services.requests.limits import waiting_of
from backendai.domain.compute.spec import MountRequest, RoleSpec, SessionSpec
from backendai.domain.planning.preview import preview
from backendai.domain.planning.snapshot import read_snapshot
from backendai.portal.loops.loops import schedule_group
from tests.api.callers import SESSIONS, Caller
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_image, make_session, place
from tests.mount_tools import ready_folder, storage_host

pytestmark = pytest.mark.django_db
WORKERS = RoleSpec(
    count=2,
    image="worker",
    resources={"cpu": 2, "mem": "1g"},
    shm="128m",
    environ={"SEED": "8", "ROLE": "w"},
    startup_command="sleep 5",
)


def mixed(cast: Cast, **over: Any) -> ComputeSession:
    """Return a batch session of a main kernel and two workers of another image and size."""
    make_image("worker")
    values = {"session_type": "batch", "startup_command": "sleep 1", "environ": {"SEED": "7"}}
    return make_session(cast.alice, **(values | {"roles": {"worker": WORKERS}} | over))


def test_each_kernel_is_placed_and_started_as_its_role_says(cast: Cast) -> None:
    agent = make_agent(cpu=8, mem="8g")
    session = mixed(cast)
    assert (session.cluster_size, session.total) == (3, Slots.parse({"cpu": 5, "mem": 2**31 + 512 * 2**20}))
    schedule_group(session.resource_group_id, timezone.now())
    kernels = list(session.kernels.all())
    assert [kernel.hostname for kernel in kernels] == ["main1", "worker1", "worker2"]
    main, first, second = (spec_for(agent, kernel.pk) for kernel in kernels)
    assert (main.image, main.command, main.slots["cpu"]) == ("local/python:latest", "sleep 1", "1")
    assert (first.image, first.command, first.slots["cpu"]) == ("local/worker:latest", "sleep 5", "2")
    assert (first.shm_bytes, second.role, second.index) == (128 * 2**20, "worker", 2)
    assert (main.environ["SEED"], first.environ["SEED"], first.environ["ROLE"]) == ("7", "8", "w")
    assert "ROLE" not in main.environ
    assert second.environ["BACKENDAI_CLUSTER_REPLICAS"] == "main:1,worker:2"
    assert second.environ["BACKENDAI_KERNEL_IMAGE"] == "local/worker:latest"
    at_once = {spec.kernel_id: spec for spec in work_for_each([WorkRequest(agent)])[0].start}
    assert [at_once[kernel.pk] for kernel in kernels] == [main, first, second]


def test_simulated_kernels_start_with_their_own_images(cast: Cast) -> None:
    agent = make_agent(cpu=8, mem="8g", backend="simulated")
    session = mixed(cast)
    place(session, agent)
    images = ["local/python:latest", "local/worker:latest"]
    backend = SimulatedBackend(deployment="test", capacity=Slots.parse({"cpu": 8, "mem": "8g"}), images=images)
    specs = [spec_for(agent, kernel.pk) for kernel in session.kernels.all()]
    for spec in specs:
        backend.start(spec)
    assert [spec.image for spec in specs] == [images[0], images[1], images[1]]
    assert {each.kernel_id for each in backend.kernels()} == {spec.kernel_id for spec in specs}
    backend.close()


def test_ledger_and_limits_count_what_each_kernel_takes(cast: Cast) -> None:
    cast.alice.policy = ResourcePolicy.objects.create(name="nine cores", slots={"cpu": "9"})
    cast.alice.save()
    make_agent(cpu=32, mem="32g")
    one, other = mixed(cast), mixed(cast)
    keys = [f"user:{cast.alice.pk}"]
    assert waiting_of(keys)[0][keys[0]]["cpu"] == 10_000
    schedule_group(one.resource_group_id, timezone.now())
    held = Allocation.objects.filter(slot="cpu").order_by("kernel__rank").values_list("amount", flat=True)
    assert list(held) == [1000, 2000, 2000], "the other one would go over 9 cores"
    other.refresh_from_db()
    assert other.status_reason == "slot-limit"


def test_kernels_on_one_agent_must_fit_it_together_and_may_lie_apart(cast: Cast) -> None:
    for name in ("n1", "n2", "n3"):
        make_agent(name, cpu=2, gateway_url=f"http://10.0.0.{name[1]}:1")
    with pytest.raises(UserError) as refused:
        mixed(cast)
    assert refused.value.code == "bigger-than-any-agent"
    wish = {"session_type": "batch", "startup_command": "true", "resources": {"cpu": 1}, "cluster_mode": "multi-node"}
    seen = preview(cast.alice, SessionSpec(image="python", roles={"worker": WORKERS}, **wish), now=timezone.now())
    assert set(seen.agents) == {"n1", "n2", "n3"}
    session = mixed(cast, cluster_mode="multi-node")
    schedule_group(session.resource_group_id, timezone.now())
    assert len({kernel.agent_id for kernel in session.kernels.all()} - {None}) == 3


def test_a_pass_asks_the_same_number_of_queries_for_kernels_that_differ(cast: Cast) -> None:
    make_agent(cpu=32, mem="32g")
    alike = make_session(cast.alice, cluster_size=3)

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            read_snapshot(make_group(), timezone.now())
        return len(captured)

    few = queries()
    mixed(cast)
    assert queries() == few
    views = {view.id: view for view in read_snapshot(make_group(), timezone.now()).pending}
    assert len({kernel.slots for kernel in views[alike.pk].kernels}) == 1


def test_a_role_mounts_its_own_folders_beside_those_of_all(cast: Cast) -> None:
    host, agent = storage_host(), make_agent(cpu=8)
    for name in ("shared", "models"):
        ready_folder(cast.alice, name, host=host)
    roles = {"worker": RoleSpec(mounts=[MountRequest("models")])}
    session = make_session(cast.alice, mounts=[MountRequest("shared")], roles=roles)
    place(session, agent)
    main, worker = (spec_for(agent, kernel.pk) for kernel in session.kernels.all())
    assert [mount.folder_name for mount in main.mounts] == ["shared"]
    assert sorted(mount.folder_name for mount in worker.mounts) == ["models", "shared"]


def test_a_manifest_tells_what_is_a_kernels_own(cast: Cast) -> None:
    agent = make_agent(cpu=8)
    session = mixed(cast)
    place(session, agent)
    worker = read_manifest(spec_for(agent, session.kernels.get(rank=1).pk).manifest)
    assert worker["own"]["image"] == ["local/worker:latest", worker["architecture"]]
    assert worker["own"]["startup_command"] == "sleep 5" and "environ" not in worker["own"]
    assert "image" not in read_manifest(spec_for(agent, session.kernels.get(rank=0).pk).manifest)["own"]


@pytest.mark.parametrize(
    ("roles", "field", "code"),
    [
        ({"worker1": RoleSpec()}, "roles.worker1", "invalid-role"),
        ({"Worker": RoleSpec()}, "roles.Worker", "invalid-role"),
        ({"worker": RoleSpec(count=0)}, "roles.worker.count", "invalid-cluster-size"),
        ({"main": RoleSpec(count=2)}, "roles.main.count", "invalid-cluster-size"),
        ({"worker": RoleSpec(count=99)}, "cluster_size", "invalid-cluster-size"),
        ({"worker": RoleSpec(image="none")}, "roles.worker.image", "unknown-image"),
        ({"worker": RoleSpec(resources={"cpu": "x"})}, "roles.worker.resources.cpu", None),
        ({"worker": RoleSpec(startup_command="true")}, "startup_command", "batch-only"),
        ({"worker": RoleSpec(environ={"1X": ""})}, "environ", None),
    ],
)
def test_a_role_that_cannot_be_is_refused_at_its_field(
    cast: Cast, roles: dict[str, RoleSpec], field: str, code: str | None
) -> None:
    with pytest.raises(UserError) as refused:
        make_session(cast.alice, roles=roles)
    assert (refused.value.field, refused.value.code) == (field, code or refused.value.code)
    assert not ComputeSession.objects.exists()


def test_rest_takes_roles_and_shows_each_kernel(cast: Cast) -> None:
    make_group()
    make_image()
    make_image("worker")
    roles = {"worker": {"count": 2, "image": "worker", "resources": {"cpu": "2", "mem": "1g"}}}
    answer = Caller(cast.alice).post(
        SESSIONS, {"image": "python", "resources": {"cpu": "1", "mem": "1g"}, "roles": roles}
    )
    assert answer.status_code == 201, answer.json()
    body = answer.json()
    shown = [(kernel["hostname"], kernel["image"], kernel["resources"]["cpu"]) for kernel in body["kernels"]]
    assert shown == [("main1", None, "1"), ("worker1", "worker", "2"), ("worker2", "worker", "2")]
    read = Caller(cast.alice).get(f"{SESSIONS}{body['id']}/").json()
    assert [kernel["image"] for kernel in read["kernels"]] == [None, "worker", "worker"]
    wrong = Caller(cast.alice).post(SESSIONS, {"image": "python", "roles": {"worker": {"sice": 2}}})
    assert wrong.status_code == 400
