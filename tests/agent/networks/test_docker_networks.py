"""Networks that are ready before their kernels: used once, lost by nobody, and no trace of them afterwards."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest
from docker import APIClient
from docker.errors import NotFound

from backendai.agent.backends.base import ImageNotFound, StartFailed
from backendai.agent.backends.docker.backend import DockerBackend
from backendai.agent.backends.docker.networks.prepared.holder import IMAGE, can_hold
from backendai.agent.settings.config import read_settings
from backendai.base.core.errors import UserError
from backendai.base.wire.messages import KernelSpec
from tests.agent.contract_tools import NewSpec, ended_of
from tests.agent.docker_tools import holders_of, shell, started_at
from tests.agent.networks.warm_tools import (
    READY,
    Reopen,
    address_of,
    filled,
    holder_of,
    killed,
    network_of,
    stopped_filling,
    unused,
)
from tests.agent.test_docker_backend import TestDockerBackend as DockerContract
from tests.patience import until

pytestmark = pytest.mark.docker
SERVE = "echo hello >index.html; exec httpd -f -p 8000"
LOOK = "hostname; id; cat /proc/sys/net/ipv4/ping_group_range /etc/resolv.conf /etc/hosts; ip route"


class TestKernelsInPreparedNetworks(DockerContract):
    """The whole contract, with networks ready before the kernels. Nothing here needs a third one."""

    @pytest.fixture
    def backend(self, reopened: Reopen) -> DockerBackend:
        return stopped_filling(filled(reopened()))


def test_it_starts_a_lone_kernel_in_a_network_that_was_ready(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    ready, spec = unused(backend), new_spec()
    started = backend.start(spec)
    assert holder_of(engine, spec) == ready[0]
    assert backend.services.address(spec.kernel_id) == address_of(engine, ready[0]) != ""
    assert (started.container_id, started.adopted) == (
        engine.inspect_container(f"krn-{spec.kernel_id}")["Id"],
        False,
    )


def test_it_gives_the_kernel_the_same_host_name_names_and_rights_as_in_a_network_of_its_own(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec, reopened: Reopen
) -> None:
    joined, own = new_spec(), new_spec(agent="n2")
    told = []
    for one, spec in ((backend, joined), (reopened(size=0, agent="n2"), own)):
        address = started_at(one, spec)
        code, output = shell(engine, spec.kernel_id, LOOK)
        assert code == 0 and f"{address}\tmain1" in output
        told.append(output.replace(address, "ADDRESS"))
    assert network_of(engine, own) == backend._networks.shared
    assert told[0].splitlines()[0] == "main1"
    assert told[0] == told[1]


def test_it_uses_a_network_for_one_kernel_only_and_removes_it_with_the_kernel(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    specs = [new_spec() for _ in range(3)]
    seen = []
    for spec in specs:
        filled(backend).start(spec)
        seen.append(holder_of(engine, spec))
        backend.stop(spec.kernel_id, grace=1)
        backend.remove(spec.kernel_id)
        with pytest.raises(NotFound):
            engine.inspect_container(seen[-1])
    assert len(set(seen)) == 3


def test_it_gives_each_of_many_simultaneous_kernels_a_network_of_its_own(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    specs = [new_spec() for _ in range(5)]
    stopped_filling(backend)
    with ThreadPoolExecutor(5) as threads:
        addresses = list(threads.map(lambda spec: started_at(backend, spec), specs))
    assert len(set(addresses)) == 5 and all(addresses)
    modes = [network_of(engine, spec) for spec in specs]
    assert modes.count(backend._networks.shared) == 3, "the pool of two ran dry and the others started as ever"
    assert len({mode for mode in modes if mode.startswith("container:")}) == READY


def test_it_fills_up_again_only_when_nothing_starts_or_ends(backend: DockerBackend, new_spec: NewSpec) -> None:
    spec = new_spec()
    with backend._prepared.undisturbed():
        backend.start(spec)
        threading.Event().wait(1)
        assert len(unused(backend)) == READY - 1
    filled(backend)


def test_it_leaves_the_network_in_the_pool_when_no_container_was_made(
    backend: DockerBackend, new_spec: NewSpec, engine: APIClient
) -> None:
    stopped_filling(backend)
    spec = new_spec()
    backend.start(spec)
    left = unused(backend)
    assert backend.start(spec).adopted
    with pytest.raises(ImageNotFound):
        backend.start(new_spec(image="local/backendai-test:no-such-image"))
    assert unused(backend) == left
    last = new_spec()
    backend.start(last)
    assert holder_of(engine, last) == left[0]


def test_it_starts_a_kernel_of_a_cluster_in_the_network_of_its_session(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    spec = new_spec(cluster_size=2)
    backend.start(spec)
    assert network_of(engine, spec) == f"bai-s-{spec.session_id}"
    assert len(unused(backend)) == READY


def test_it_reaches_the_kernel_by_its_address_and_no_kernel_reaches_another(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    server, other = new_spec(session_type="batch", command=SERVE), new_spec()
    address = started_at(backend, server)
    backend.start(other)
    for spec in (server, other):
        holder_of(engine, spec)

    def answered() -> bool:
        try:
            socket.create_connection((address, 8000), timeout=2).close()
        except OSError:
            return False
        return True

    until(answered)
    assert shell(engine, server.kernel_id, "nc -w 2 127.0.0.1 8000 </dev/null")[0] == 0
    assert shell(engine, other.kernel_id, f"nc -w 2 {address} 8000 </dev/null")[0] != 0


def test_it_gives_a_holder_no_rights_and_next_to_no_room(backend: DockerBackend, engine: APIClient) -> None:
    found = engine.inspect_container(unused(backend)[0])
    host = found["HostConfig"]
    assert found["Config"]["User"] == "65534:65534"
    assert (host["CapDrop"], host["SecurityOpt"], host["ReadonlyRootfs"]) == (["ALL"], ["no-new-privileges"], True)
    assert host["Memory"] == host["MemorySwap"] == 16 * 2**20
    assert host["PidsLimit"] == 16
    assert not host["Privileged"] and not found["Mounts"] and host["IpcMode"] == "none"
    assert engine.inspect_image(IMAGE)["Size"] < 1024


def test_it_makes_the_image_of_holders_anew_when_somebody_removed_it(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    engine.remove_image(IMAGE, force=True)
    with backend._prepared._changed:
        backend._prepared._size += 1
        backend._prepared._changed.notify_all()
    filled(backend)
    backend.start(new_spec())


def test_it_shows_holders_neither_as_kernels_nor_as_images(backend: DockerBackend, new_spec: NewSpec) -> None:
    assert backend.kernels() == []
    spec = new_spec()
    backend.start(spec)
    assert [kernel.kernel_id for kernel in backend.kernels()] == [spec.kernel_id]
    assert IMAGE not in [image.reference for image in backend.images()]


def test_it_goes_on_telling_of_ends_when_a_holder_dies(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    told: list[UUID] = []
    watching = threading.Thread(target=lambda: told.extend(event.kernel_id for event in backend.watch()), daemon=True)
    watching.start()

    def first_is_told() -> bool:  # an end before the watcher listens is told to nobody
        spec = new_spec(session_type="batch", command="exit 0")
        backend.start(spec)
        ended_of(backend, spec.kernel_id)
        watching.join(1)
        return bool(told)

    until(first_is_told)
    engine.kill(filled(backend)._prepared._idle[0].container_id)
    last = new_spec(session_type="batch", command="exit 0")
    backend.start(last)
    until(lambda: last.kernel_id in told)


def test_it_says_why_a_kernel_cannot_start_and_leaves_neither_kernel_nor_network(
    backend: DockerBackend, engine: APIClient, deployment: str, new_spec: NewSpec
) -> None:
    stopped_filling(backend)
    before = holders_of(engine, deployment)
    with pytest.raises(StartFailed, match="memory"):
        backend.start(new_spec(slots={"cpu": "1", "mem": str(2**20)}))
    assert backend.kernels() == []
    assert len(holders_of(engine, deployment)) == len(before) - 1 == len(unused(backend))


def test_it_takes_up_after_a_kill_what_was_ready_and_removes_what_was_used(
    backend: DockerBackend, engine: APIClient, deployment: str, reopened: Reopen, new_spec: NewSpec
) -> None:
    running, lost = new_spec(), new_spec()
    for spec in (running, lost):
        backend.start(spec)
    kept, abandoned = holder_of(engine, running), holder_of(engine, lost)
    filled(backend)
    killed(backend)
    engine.remove_container(f"krn-{lost.kernel_id}", force=True)
    again = reopened()
    assert set(unused(again)) == set(unused(backend))
    again.sweep({running.kernel_id})
    assert set(holders_of(engine, deployment)) == {kept, *unused(again)}
    assert abandoned not in holders_of(engine, deployment)
    adopted = again.start(running)
    assert adopted.adopted
    assert (
        again.services.address(running.kernel_id)
        == engine.inspect_container(kept)["NetworkSettings"]["Networks"][again._networks.shared]["IPAddress"]
    )


def test_it_never_uses_a_network_again_that_may_have_been_used(
    backend: DockerBackend, engine: APIClient, deployment: str, reopened: Reopen
) -> None:
    killed(backend)
    with backend._prepared.claimed(None) as holder:  # and here the agent dies
        assert holder is not None
    again = filled(reopened())
    assert holder.container_id not in unused(again)
    again.sweep(set())
    assert set(holders_of(engine, deployment)) == set(unused(again))


def test_it_finishes_a_start_in_a_ready_network_that_a_killed_agent_began(
    backend: DockerBackend, engine: APIClient, reopened: Reopen, new_spec: NewSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive, orphan = new_spec(), new_spec()
    with monkeypatch.context() as dying:
        dying.setattr(backend._starter, "_run", lambda *args, **options: pytest.fail("killed"))
        for spec in (alive, orphan):
            with pytest.raises(pytest.fail.Exception):
                backend.start(spec)
    killed(backend)
    again = reopened()
    assert holder_of(engine, alive) not in unused(again)
    again.sweep({alive.kernel_id, orphan.kernel_id})
    started = again.start(alive)
    assert started.adopted and again.services.address(alive.kernel_id)
    assert holder_of(engine, alive)
    engine.remove_container(holder_of(engine, orphan), force=True)
    assert started_at(again, orphan)
    assert [kernel.running for kernel in again.kernels()] == [True, True]


def test_it_removes_the_network_of_an_older_generation(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    old = new_spec(generation=1)
    backend.start(old)
    before = holder_of(engine, old)
    backend.start(old.model_copy(update={"generation": 2}))
    assert holder_of(engine, old) != before
    with pytest.raises(NotFound):
        engine.inspect_container(before)


def test_it_leaves_the_networks_of_another_agent_on_the_same_engine_alone(
    backend: DockerBackend, engine: APIClient, reopened: Reopen, new_spec: NewSpec
) -> None:
    other = filled(reopened(agent="n2"))
    spec = new_spec(agent="n2")
    other.start(spec)
    backend.sweep(set())
    filled(other).sweep({spec.kernel_id})
    for container in (*unused(backend), *unused(other), holder_of(engine, spec)):
        assert engine.inspect_container(container)["State"]["Running"]
    assert not set(unused(backend)) & set(unused(other))


def test_it_leaves_nothing_when_it_stops_but_the_networks_of_kernels(
    backend: DockerBackend, engine: APIClient, deployment: str, new_spec: NewSpec
) -> None:
    spec = new_spec()
    backend.start(spec)
    backend.close()
    assert holders_of(engine, deployment) == [holder_of(engine, spec)]
    backend.remove(spec.kernel_id)
    assert holders_of(engine, deployment) == []
    backend.dismantle()
    assert engine.networks(names=[backend._networks.shared]) == []


def test_it_loses_and_leaves_no_network_while_kernels_come_and_go_and_it_sweeps(
    backend: DockerBackend, engine: APIClient, deployment: str, new_spec: NewSpec
) -> None:
    specs = [[new_spec() for _ in range(4)] for _ in range(3)]
    wanted = {spec.kernel_id for some in specs for spec in some}
    over = threading.Event()
    joined: list[str] = []

    def come_and_go(some: list[KernelSpec]) -> None:
        for spec in some:
            until(lambda: unused(backend))
            backend.start(spec)
            mode = network_of(engine, spec)
            if mode.startswith("container:"):
                joined.append(mode)
                assert engine.inspect_container(mode.removeprefix("container:"))["State"]["Running"]
            assert "eth0" in shell(engine, spec.kernel_id, "ip route")[1]
            backend.remove(spec.kernel_id)

    def sweep() -> None:
        while not over.is_set():
            backend.sweep(wanted)

    with ThreadPoolExecutor(4) as threads:
        sweeping = threads.submit(sweep)
        try:
            list(threads.map(come_and_go, specs))
        finally:
            over.set()
        sweeping.result()
    assert joined and len(set(joined)) == len(joined)
    filled(backend).sweep(set())
    assert set(holders_of(engine, deployment)) == set(unused(backend))
    assert backend._prepared._marks.all() == {one.holder_id for one in backend._prepared._idle}


def test_it_removes_what_was_ready_when_it_is_told_to_keep_less(
    backend: DockerBackend, engine: APIClient, deployment: str, reopened: Reopen
) -> None:
    killed(backend)
    fewer = reopened(size=1)
    fewer.sweep(set())
    assert holders_of(engine, deployment) == unused(fewer)
    assert len(unused(fewer)) == 1
    killed(fewer)
    none = reopened(size=0)
    none.sweep(set())
    assert holders_of(engine, deployment) == []


def test_it_replaces_a_ready_network_that_died(backend: DockerBackend, engine: APIClient, deployment: str) -> None:
    dead = unused(backend)[0]
    engine.kill(dead)
    backend.sweep(set())
    filled(backend)
    assert dead not in holders_of(engine, deployment)
    assert set(holders_of(engine, deployment)) == set(unused(backend))


def test_it_notes_a_kernel_whose_network_was_taken_away_and_lets_it_run(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    spec = new_spec()
    backend.start(spec)
    backend.sweep({spec.kernel_id})
    assert "kernel-without-network" not in [note.code for note in backend.notes()]
    engine.remove_container(holder_of(engine, spec), force=True)
    backend.sweep({spec.kernel_id})
    (note,) = [note for note in backend.notes() if note.code == "kernel-without-network"]
    assert str(spec.kernel_id) in note.message
    assert backend.ended(spec.kernel_id) is None
    backend.remove(spec.kernel_id)
    backend.sweep(set())
    assert "kernel-without-network" not in [note.code for note in backend.notes()]


def test_it_takes_nothing_for_a_holder_that_only_inherited_its_labels(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    labels = engine.inspect_container(unused(backend)[0])["Config"]["Labels"]
    copy = engine.create_container(new_spec().image, "true", labels=labels)
    backend.sweep(set())
    assert engine.inspect_container(copy["Id"])
    engine.remove_container(copy["Id"])


def test_it_is_told_how_many_networks_to_keep_ready_and_refuses_what_makes_no_sense() -> None:
    variable = "BACKENDAI_AGENT_WARM_NETWORKS"
    assert [read_settings({variable: told}, {}).warm_networks for told in ("", "0", "64")] == [16, 0, 64]
    for wrong in ("-1", "65", "1.5", "many", "٣"):
        with pytest.raises(UserError, match="0 to 64"):
            read_settings({variable: wrong}, {})


def test_it_makes_no_networks_in_advance_where_kernels_could_not_join_them() -> None:
    good: dict[str, Any] = {"Architecture": "x86_64", "DefaultRuntime": "runc"}
    assert can_hold(good)
    assert can_hold(good | {"Architecture": "aarch64"})
    assert not can_hold(good | {"Architecture": "riscv64"})
    assert not can_hold(good | {"DefaultRuntime": "kata"})


def test_it_starts_a_kernel_with_a_runtime_of_its_own_the_usual_way(backend: DockerBackend) -> None:
    with backend._prepared.claimed("kata") as holder:
        assert holder is None
    assert len(unused(backend)) == READY


def test_it_does_not_keep_starts_waiting_while_the_engine_refuses_holders(
    reopened: Reopen,
    engine: APIClient,
    new_spec: NewSpec,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("backendai.agent.backends.docker.networks.prepared.holder._MEMORY", 1)
    backend = reopened()
    until(lambda: "no network could be made in advance" in caplog.text)
    spec = new_spec()
    assert started_at(backend, spec)
    assert network_of(engine, spec) == backend._networks.shared
