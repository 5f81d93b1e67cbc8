"""The files by which kernels of one session reach each other, and SSH without passwords through real containers."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import stat
import subprocess
from functools import partial
from pathlib import Path

import pytest
from docker import APIClient

from backendai.agent.backends.docker.backend import DockerBackend
from backendai.agent.backends.shared.cluster_files import (
    ClusterAccess,
    access_files,
    cluster_environ,
    lacking,
    with_ssh,
    write_cluster,
)
from backendai.base.core.ssh_keys import key_of, private_text
from backendai.base.wire.cluster_network import Peer
from backendai.base.wire.messages import HomeFile
from tests.agent.cluster_tools import HOSTILE, OPEN_MPI, cluster_specs, run
from tests.agent.contract_tools import NewSpec
from tests.agent.docker_tools import shell
from tests.agent.images import ensure_mpi_image, ensure_ssh_image
from tests.agent.prerequisites import need_program, need_root
from tests.agent.specs import make_spec

INSIDE = ClusterAccess("/run/backendai", "/tmp/.kept")
NAMES = ["main1", "sub1", "sub2"]


def test_every_host_stands_in_the_files_with_its_share(tmp_path: Path) -> None:
    spec = cluster_specs(make_spec, NAMES)[1]
    write_cluster(tmp_path, spec, INSIDE, owner=None)
    assert (tmp_path / "hostfile").read_text() == "main1 slots=1\nsub1 slots=2\nsub2 slots=3\n"
    assert (tmp_path / "hostfile.mpich").read_text() == "main1:1\nsub1:2\nsub2:3\n"
    hosts = json.loads((tmp_path / "hosts.json").read_text())
    assert [host["rank"] for host in hosts] == [0, 1, 2] and "address" not in hosts[0]
    assert cluster_environ(spec, INSIDE)["HYDRA_HOST_FILE"] == "/run/backendai/hostfile.mpich"


def test_private_keys_are_for_their_user_alone_and_nobody_elses_session_has_them(tmp_path: Path) -> None:
    specs = [cluster_specs(make_spec, NAMES)[0] for _ in range(2)]
    for number, spec in enumerate(specs):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_cluster(folder, spec, INSIDE, owner=None)
        write_cluster(folder, spec, INSIDE, owner=None)  # a start that is tried again
    private = [tmp_path / number / "ssh" / name for number in "01" for name in ("id_ed25519", "host_key")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}
    assert len({path.read_text() for path in private}) == 4
    assert specs[0].keys is not None and specs[0].keys.login not in repr(specs[0])
    for key in private:
        shown = subprocess.run(["ssh-keygen", "-y", "-f", key], capture_output=True, text=True, check=True)
        assert shown.stdout.startswith("ssh-ed25519 ")


def test_the_configuration_of_ssh_leads_to_each_kernel_and_only_to_those(tmp_path: Path) -> None:
    spec = cluster_specs(make_spec, NAMES)[0]
    far = [peer.model_copy(update={"address": f"10.88.0.{peer.rank + 1}"}) for peer in spec.peers]
    write_cluster(tmp_path, spec.model_copy(update={"peers": far}), INSIDE, owner=None)

    def asked(host: str) -> dict[str, str]:
        command = ["ssh", "-G", "-F", tmp_path / "ssh/config", host]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return dict(line.split(" ", 1) for line in told.splitlines())

    assert (asked("sub2")["hostname"], asked("sub2")["port"]) == ("10.88.0.3", "2222")
    assert asked("sub2")["identityfile"] == "/run/backendai/ssh/id_ed25519"
    assert asked("github.com")["hostname"] == "github.com" and asked("github.com")["port"] == "22"
    assert "identityfile" not in asked("github.com") or "backendai" not in asked("github.com")["identityfile"]


def test_a_configuration_that_somebody_keeps_comes_after_ours() -> None:
    own = HomeFile(path=".ssh/config", mode=0o644, content="Host mine\n  User me\n")
    other = HomeFile(path=".bashrc", content="x")
    spec = cluster_specs(make_spec, NAMES, files=[own, other])[0]
    files = {file.path: file for file in access_files(spec, INSIDE)}
    assert files[".ssh/config"].content == "Include /run/backendai/ssh/config\n\nHost mine\n  User me\n"
    assert (files[".ssh/config"].mode, files[".bashrc"]) == (0o600, other)


@pytest.mark.parametrize("access", [INSIDE, ClusterAccess("/run/backendai", "/tmp/.kept", "no ssh here")])
def test_lone_kernels_and_places_without_ssh_get_none_of_it(tmp_path: Path, access: ClusterAccess) -> None:
    alone, one = make_spec(files=[HomeFile(path=".ssh/config", content="x")]), cluster_specs(make_spec, NAMES)[0]
    write_cluster(tmp_path, alone, access, owner=None)
    assert list(tmp_path.iterdir()) == [] and cluster_environ(alone, access) == {}
    assert with_ssh(alone, access, ["a"]) == ["a"] and list(access_files(alone, access)) == alone.files
    if access.no_ssh:
        write_cluster(tmp_path, one, access, owner=None)
        assert not (tmp_path / "ssh").exists() and (tmp_path / "hostfile").exists()
        assert with_ssh(one, access, ["a"]) == ["a"] and list(access_files(one, access)) == []


def test_native_kernels_of_one_machine_have_ports_of_their_own_on_its_loopback(tmp_path: Path) -> None:
    specs = cluster_specs(make_spec, NAMES, native=True)
    write_cluster(tmp_path, specs[0], INSIDE, owner=None)
    server = (tmp_path / "ssh/sshd_config").read_text()
    assert f"Port {specs[0].peers[0].ssh_port}\nListenAddress 127.0.0.1\n" in server
    assert (tmp_path / "ssh/config").read_text().count("HostName 127.0.0.1") == 3
    assert len({peer.ssh_port for peer in specs[0].peers} - {Peer(hostname="x").ssh_port}) == 3


def test_what_an_image_lacks_is_said() -> None:
    assert lacking([]) == ""
    assert "no ssh and no sshd" in lacking(["sshd", "ssh"])


@pytest.fixture(scope="module")
def image(engine: APIClient) -> str:
    need_program("sshd", "openssh-server")
    return ensure_ssh_image(engine)


@pytest.mark.docker
def test_a_program_starts_processes_on_every_kernel_of_its_session(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec, image: str
) -> None:
    need_root("kernels get keys of their own")
    specs = cluster_specs(partial(new_spec, image=image), NAMES)
    log = run(backend, specs)
    assert [line for line in log.splitlines() if line.startswith("rank")] == [
        f"rank {rank} of 3 on {name}" for rank, name in enumerate(NAMES)
    ]
    digest = hashlib.md5(HOSTILE.encode(), usedforsecurity=False).hexdigest()
    assert log.count(digest) == 3, "variables with quotes and line feeds arrive as they are"
    assert backend.left_out(specs[0].kernel_id) == ""
    assert "Read-only" in shell(engine, specs[1].kernel_id, "echo x >/run/backendai/hostfile")[1]


@pytest.mark.docker
@pytest.mark.long
def test_open_mpi_starts_a_program_on_every_kernel_of_its_session(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    need_program("sshd", "openssh-server")
    if shutil.which("mpirun") is None:
        pytest.skip("needs mpirun: apt-get install openmpi-bin")
    specs = cluster_specs(partial(new_spec, image=ensure_mpi_image(engine)), NAMES, command=OPEN_MPI)
    log = run(backend, specs, main_last=True)
    told = sorted(line for line in log.splitlines() if line.startswith("rank "))
    # A kernel's slots are its rank + 1 here: one process on the first, two on the second, three on the third.
    hosts = [name for slots, name in enumerate(NAMES, 1) for _ in range(slots)]
    assert told == [f"rank {rank} of 6 on {host}" for rank, host in enumerate(hosts)], log


@pytest.mark.docker
def test_other_sessions_keys_open_nothing_and_an_image_without_ssh_says_so(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec, image: str
) -> None:
    need_root("kernels get keys of their own")
    specs = cluster_specs(partial(new_spec, image=image), NAMES[:2])
    foreign = cluster_specs(new_spec, NAMES[:2])[0].keys
    tiny = cluster_specs(new_spec, NAMES[:2])[1]
    backend.start(specs[1])
    backend.start(tiny)
    assert "no ssh and no sshd" in backend.left_out(tiny.kernel_id)
    assert foreign is not None
    key = shlex.quote(private_text(key_of(foreign.login)))
    words = f"umask 077; echo {key} >/tmp/k; ssh -i /tmp/k -o IdentitiesOnly=yes -F none"
    answer = shell(engine, specs[1].kernel_id, f"{words} -p 2222 -o StrictHostKeyChecking=no sub1 true")[1]
    assert "Permission denied (publickey)" in answer
    backend.remove(tiny.kernel_id)
    assert backend.left_out(tiny.kernel_id) == ""
