"""What a kernel's container is made of, and how its end is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from docker import APIClient

from backendai.agent.backends.base import BackendError, StartFailed
from backendai.agent.backends.docker.backend import DockerBackend
from tests.agent.contract_tools import NewSpec, ended_of
from tests.agent.docker_tools import shell
from tests.agent.images import ensure_shellless_image
from tests.certificates import certificate
from tests.patience import until

pytestmark = pytest.mark.docker


def test_it_limits_and_locks_up_the_container(backend: DockerBackend, engine: APIClient, new_spec: NewSpec) -> None:
    spec = new_spec(slots={"cpu": "0.25", "mem": str(96 * 2**20)}, pids=99, shm_bytes=8 * 2**20, hostname="sub3")
    backend.start(spec)
    found = engine.inspect_container(f"krn-{spec.kernel_id}")
    host = found["HostConfig"]
    assert host["NanoCpus"] == 250_000_000
    assert host["Memory"] == host["MemorySwap"] == 96 * 2**20
    assert (host["PidsLimit"], host["ShmSize"]) == (99, 8 * 2**20)
    assert (host["CapDrop"], host["SecurityOpt"][0], host["Init"]) == (["ALL"], "no-new-privileges", True)
    assert not host["Privileged"] and not host["PortBindings"] and not host["PublishAllPorts"]
    assert (found["Config"]["User"], found["Config"]["Hostname"]) == ("1000:1000", "sub3")
    labels = found["Config"]["Labels"]
    assert labels["backendai.kernel"] == str(spec.kernel_id)
    assert labels["backendai.generation"] == "1"


def test_it_gives_the_kernel_a_home_that_it_can_write(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    spec = new_spec(environ={"GREETING": "two words; $HOME"})
    backend.start(spec)
    code, output = shell(engine, spec.kernel_id, 'cd; pwd; touch new && echo "$GREETING|$LANG"; id -u')
    assert (code, output.split("\n")[:3]) == (0, ["/home/work", "two words; $HOME|C.UTF-8", "1000"])


def test_its_programs_find_the_sites_authorities_and_cannot_change_them(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    spec = new_spec(authorities=certificate())
    backend.start(spec)
    _, there = shell(engine, spec.kernel_id, 'cat "$NODE_EXTRA_CA_CERTS"')
    assert there.replace("\r", "") == certificate()
    _, count = shell(engine, spec.kernel_id, 'grep -c BEGIN "$SSL_CERT_FILE"')
    assert int(count) > 50
    code, _ = shell(engine, spec.kernel_id, 'echo x > "$SSL_CERT_FILE"')
    assert code != 0


def test_it_says_in_the_log_what_was_started(backend: DockerBackend, new_spec: NewSpec) -> None:
    spec = new_spec(session_name="$(reboot)", hostname="main1")
    backend.start(spec)
    log = until(lambda: backend.read_log(spec.kernel_id, limit=1000)[0]).decode()
    assert log == f"Session $(reboot) on main1: {spec.image}, 0.5 CPU cores, 64 MiB of memory\n"


def test_it_asks_for_no_more_cpus_than_the_machine_has(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    spec = new_spec(slots={"cpu": "512", "mem": str(64 * 2**20)})
    backend.start(spec)
    host = engine.inspect_container(f"krn-{spec.kernel_id}")["HostConfig"]
    assert host["NanoCpus"] == engine.info()["NCPU"] * 10**9


def test_it_tells_out_of_memory_with_the_limit(backend: DockerBackend, new_spec: NewSpec) -> None:
    eat = "exec awk 'BEGIN { text = \"0123456789abcdef\"; while (1) text = text text }'"
    spec = new_spec(session_type="batch", command=eat, slots={"cpu": "1", "mem": str(32 * 2**20)})
    backend.start(spec)
    ended = ended_of(backend, spec.kernel_id)
    assert (ended.exit_code, ended.reason) == (137, "out-of-memory")
    assert "32 MiB" in ended.message


def test_it_tells_out_of_memory_when_the_engine_noticed_it_only_after_the_end(
    backend: DockerBackend, new_spec: NewSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = backend._engine.find

    def find_unflagged(kernel_id: UUID) -> dict[str, Any] | None:
        found = find(kernel_id)
        if found is not None:
            found["State"]["OOMKilled"] = False
        return found

    monkeypatch.setattr(backend._engine, "find", find_unflagged)
    eat = "exec awk 'BEGIN { text = \"0123456789abcdef\"; while (1) text = text text }'"
    spec = new_spec(session_type="batch", command=eat, slots={"cpu": "1", "mem": str(32 * 2**20)})
    backend.start(spec)
    ended = ended_of(backend, spec.kernel_id)
    assert (ended.exit_code, ended.reason) == (137, "out-of-memory")


def test_it_does_not_blame_the_memory_when_the_main_process_was_killed_otherwise(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    spec, child = new_spec(), new_spec(session_type="batch", command="sh -c 'kill -9 $$'")
    for one in (spec, child):
        backend.start(one)
    engine.kill(f"krn-{spec.kernel_id}")
    for one, reason, word in ((spec, "container-killed", "outside the platform"), (child, "exited", "SIGKILL")):
        ended = ended_of(backend, one.kernel_id)
        assert (ended.exit_code, ended.reason) == (137, reason)
        assert word in ended.message


def test_it_starts_a_container_that_was_made_but_not_started(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    spec = new_spec()
    first = backend.start(spec)
    config = engine.inspect_container(first.container_id)
    engine.remove_container(first.container_id, force=True)
    host = config["HostConfig"]
    made = engine.create_container_from_config({**config["Config"], "HostConfig": host}, f"krn-{spec.kernel_id}")
    assert [kernel.running for kernel in backend.kernels()] == [False]
    started = backend.start(spec)
    assert (started.container_id, started.adopted) == (made["Id"], True)
    assert [kernel.running for kernel in backend.kernels()] == [True]


def test_it_adopts_a_running_kernel_whose_image_lost_its_name(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    name = f"local/backendai-test:{uuid4().hex[:8]}"
    engine.tag(new_spec().image, *name.split(":"))
    spec = new_spec(image=name)
    first = backend.start(spec)
    engine.remove_image(name, force=True)
    second = backend.start(spec)
    assert (second.container_id, second.adopted) == (first.container_id, True)
    assert shell(engine, spec.kernel_id, "touch /home/work/still-mine")[0] == 0


def test_it_takes_no_container_for_a_kernel_that_only_inherited_its_labels(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    spec = new_spec()
    backend.start(spec)
    labels = engine.inspect_container(f"krn-{spec.kernel_id}")["Config"]["Labels"]
    copy = engine.create_container(spec.image, "true", labels=labels)
    assert [kernel.container_id for kernel in backend.kernels()] == [
        engine.inspect_container(f"krn-{spec.kernel_id}")["Id"]
    ]
    backend.remove(spec.kernel_id)
    engine.remove_container(copy["Id"])


def test_it_refuses_a_name_that_another_deployment_holds(
    backend: DockerBackend, neighbour: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    spec = new_spec()
    first = backend.start(spec)
    foreign = spec.model_copy(update={"deployment": neighbour._engine.deployment, "generation": 9})
    with pytest.raises(StartFailed):
        neighbour.start(foreign)
    assert engine.inspect_container(first.container_id)["State"]["Running"]


def test_it_says_why_the_engine_cannot_start_a_kernel_and_leaves_nothing(
    backend: DockerBackend, new_spec: NewSpec
) -> None:
    with pytest.raises(StartFailed, match="memory"):
        backend.start(new_spec(slots={"cpu": "1", "mem": str(2**20)}))
    assert backend.kernels() == []


def test_it_says_that_a_registry_does_not_know_an_image_or_does_not_answer(backend: DockerBackend) -> None:
    reference = "localhost:1/nobody/home:latest"
    with pytest.raises(BackendError) as caught:
        backend.pull(reference, timeout=30, progress=lambda fetched: None)
    assert caught.value.code == "registry-unreachable"
    assert reference in caught.value.message


def test_it_does_not_take_silence_for_an_empty_list(backend: DockerBackend, tmp_path: Path) -> None:
    nobody = DockerBackend(tmp_path, deployment="x", agent="n1", docker_url=f"unix://{tmp_path}/no.sock")
    with pytest.raises(BackendError) as caught:
        nobody.kernels()
    assert caught.value.code == "engine-unreachable"
    assert list(nobody.watch()) == []


def test_it_needs_nothing_of_the_path_that_an_image_or_its_owner_chose(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    told = {"environ": {"PATH": "/nowhere"}, "bootstrap": "echo $PATH"}
    stays, ends = new_spec(**told), new_spec(**told, session_type="batch", command="echo $PATH; exit 3")
    for spec in (stays, ends):
        backend.start(spec)
    ended = ended_of(backend, ends.kernel_id)
    assert (ended.exit_code, ended.reason) == (3, "exited")
    assert backend.read_log(ends.kernel_id, limit=1000)[0] == b"/nowhere\n/nowhere\n"
    shell(engine, stays.kernel_id, "echo of-an-app >/tmp/.app-notes.log")
    assert backend.services is not None
    assert backend.services.log(stays.kernel_id, "notes", limit=7) == b"an-app\n"
    assert backend.ended(stays.kernel_id) is None


def test_it_says_that_an_image_has_no_shell(backend: DockerBackend, engine: APIClient, new_spec: NewSpec) -> None:
    image = ensure_shellless_image(engine)
    spec = new_spec(session_type="batch", command="true", image=image)
    backend.start(spec)
    ended = ended_of(backend, spec.kernel_id)
    assert (ended.exit_code, ended.reason) == (127, "shell-missing")
    assert "no /bin/sh" in ended.message
