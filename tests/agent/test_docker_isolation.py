"""What kernels reach over the network, and what they do not. The packets are real."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn
from uuid import UUID, uuid4

import pytest
from docker import APIClient

from backendai.agent.backends.docker.backend import DockerBackend
from backendai.agent.backends.docker.networks.firewall import Firewall
from backendai.base.wire.cluster_network import Peer
from backendai.base.wire.messages import KernelSpec
from tests.agent.contract_tools import NewSpec
from tests.agent.docker_tools import shell, started_at
from tests.agent.images import ensure_python_image
from tests.agent.prerequisites import need_program, need_root
from tests.patience import until

pytestmark = [pytest.mark.core, pytest.mark.docker]
FORBIDDEN = """
import ctypes, platform, socket
libc = ctypes.CDLL(None, use_errno=True)
def fault(*call):
    ctypes.set_errno(0)
    return ctypes.get_errno() if libc.syscall(*call) < 0 else 0
socket_call, unshare = (41, 272) if platform.machine() == "x86_64" else (198, 97)
print([fault(socket_call, 40, 1, 0), *(fault(number, 0, 0) for number in (425, 426, 427)), fault(unshare, 0x10000000)])
"""
NEEDED = """
import ctypes, multiprocessing, os, socket, subprocess, threading
thread = threading.Thread(target=os.getpid); thread.start(); thread.join()
subprocess.run(["true"], check=True)
for family in (socket.AF_INET, socket.AF_UNIX, socket.AF_NETLINK): socket.socket(family, socket.SOCK_DGRAM).close()
multiprocessing.get_context("fork").Pool(1).map(abs, [1])
child = os.fork()
if not child: os._exit(ctypes.CDLL(None).ptrace(0, 0, 0, 0) and 9)
assert os.waitpid(child, 0)[1] == 0
print("fine")
"""
SERVE = "echo hello >index.html; exec httpd -f -p 8000"


@pytest.fixture(autouse=True)
def packet_rules() -> None:
    """Nothing is shut off where no rules can be set."""
    need_root("only root sets packet rules")
    need_program("iptables", "iptables")
    need_program("ip", "iproute2")


@pytest.fixture
def host_port() -> Iterator[int]:
    """The port of a service on all addresses of this machine that hangs up on anyone who connects."""

    def hang_up() -> None:
        with contextlib.suppress(OSError):
            while True:
                server.accept()[0].close()

    server = socket.create_server(("0.0.0.0", 0))
    threading.Thread(target=hang_up, daemon=True).start()
    yield server.getsockname()[1]
    server.shutdown(socket.SHUT_RDWR)
    server.close()


def connects(engine: APIClient, kernel_id: UUID, address: str, port: int) -> bool:
    return shell(engine, kernel_id, f"nc -w 2 {address} {port} </dev/null")[0] == 0


def gateway_of(engine: APIClient, spec: KernelSpec) -> str:
    return shell(engine, spec.kernel_id, "ip route")[1].split()[2]


def host_addresses() -> list[str]:
    output = subprocess.run(["ip", "-4", "-o", "address"], capture_output=True, text=True, check=True).stdout
    return [line.split()[3].partition("/")[0] for line in output.splitlines()]


def test_it_keeps_kernels_from_the_services_of_the_node(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec, host_port: int
) -> None:
    spec = new_spec()
    backend.start(spec)
    addresses = [address for address in host_addresses() if not address.startswith("127.")]
    assert gateway_of(engine, spec) in addresses
    assert [address for address in addresses if connects(engine, spec.kernel_id, address, host_port)] == []


def test_it_is_the_rules_that_keep_kernels_out(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec, host_port: int
) -> None:
    spec = new_spec()
    backend.start(spec)
    gateway = gateway_of(engine, spec)
    assert not connects(engine, spec.kernel_id, gateway, host_port)
    open_door = ["INPUT", "-p", "tcp", "--dport", str(host_port), "-j", "ACCEPT"]
    subprocess.run(["iptables", "-w", "5", "-I", *open_door], check=True)
    try:
        assert connects(engine, spec.kernel_id, gateway, host_port)
    finally:
        subprocess.run(["iptables", "-w", "5", "-D", *open_door], check=True)


def test_it_lets_the_node_reach_kernels_but_not_kernels_each_other(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    server, other = new_spec(session_type="batch", command=SERVE), new_spec()
    address = started_at(backend, server)
    backend.start(other)

    def answered() -> bool:
        try:
            socket.create_connection((address, 8000), timeout=2).close()
        except OSError:
            return False
        return True

    until(answered)
    assert connects(engine, server.kernel_id, "127.0.0.1", 8000)
    assert not connects(engine, other.kernel_id, address, 8000)


def test_it_lets_kernels_of_one_cluster_reach_each_other_by_name_and_no_others(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    session = uuid4()
    main = new_spec(session_id=session, cluster_size=2, hostname="main1", session_type="batch", command=SERVE)
    sub = new_spec(session_id=session, cluster_size=2, hostname="sub1")
    stranger = new_spec(cluster_size=2, hostname="main1")
    address = started_at(backend, main)
    for spec in (sub, stranger):
        backend.start(spec)
    until(lambda: connects(engine, sub.kernel_id, "main1", 8000))
    assert not connects(engine, stranger.kernel_id, address, 8000)
    assert len(engine.networks(names=[f"bai-s-{session}"])) == 1
    backend.remove(main.kernel_id)
    assert len(engine.networks(names=[f"bai-s-{session}"])) == 1
    backend.remove(sub.kernel_id)
    assert engine.networks(names=[f"bai-s-{session}"]) == []


def test_the_addresses_of_a_cluster_have_the_names_of_its_kernels(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    session, image = uuid4(), ensure_python_image(engine)
    peers = [Peer(hostname=name, rank=rank) for rank, name in enumerate(("main1", "sub1"))]
    one = {"session_id": session, "cluster_size": 2, "image": image, "peers": peers}
    main, sub = (new_spec(hostname=peer.hostname, **one) for peer in peers)
    backend.start(sub)
    backend.start(main)
    look = "import socket; print([socket.gethostbyaddr(socket.gethostbyname(n))[0] for n in ('main1', 'sub1')])"
    for spec in (main, sub):
        assert shell(engine, spec.kernel_id, f'python3 -c "{look}"') == (0, "['main1', 'sub1']\n")
    backend.remove(sub.kernel_id)
    backend.start(sub.model_copy(update={"generation": 2}))
    assert shell(engine, main.kernel_id, f'python3 -c "{look}"') == (0, "['main1', 'sub1']\n")


def test_a_kernel_has_no_vsock_sockets_no_io_uring_and_no_namespaces(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    spec = new_spec(image=ensure_python_image(engine))
    backend.start(spec)
    (status, output) = shell(engine, spec.kernel_id, f"python3 -c '{FORBIDDEN}'")
    assert (status, output) == (0, "[1, 1, 1, 1, 1]\n"), "each is not permitted"
    # What people's programs need goes on: threads, processes, sockets, tracing.
    assert shell(engine, spec.kernel_id, f"python3 -c '{NEEDED}'") == (0, "fine\n")


def test_it_makes_the_shared_network_anew_when_it_is_missing(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    backend.dismantle()
    assert started_at(backend, new_spec())
    network = engine.inspect_network(backend._networks.shared)
    assert network["Options"]["com.docker.network.bridge.enable_icc"] == "false"


def test_it_is_not_held_to_the_few_networks_of_the_engine(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec
) -> None:
    specs = [new_spec(cluster_size=2) for _ in range(3)]
    for spec in specs:
        backend.start(spec)
    subnets = [engine.inspect_network(f"bai-s-{spec.session_id}")["IPAM"]["Config"][0]["Subnet"] for spec in specs]
    assert len(set(subnets)) == 3
    assert all(subnet.startswith("10.89.") and subnet.endswith("/26") for subnet in subnets)


def test_it_sweeps_away_a_network_whose_session_is_gone(
    backend: DockerBackend, engine: APIClient, new_spec: NewSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = new_spec(cluster_size=2)
    backend.start(spec)
    engine.remove_container(f"krn-{spec.kernel_id}", force=True)
    backend.sweep(set())
    assert len(engine.networks(names=[f"bai-s-{spec.session_id}"])) == 1, "it is too young to be judged"
    monkeypatch.setattr("backendai.agent.backends.docker.networks.network._SETTLING_SECONDS", -1.0)
    backend.sweep(set())
    assert engine.networks(names=[f"bai-s-{spec.session_id}"]) == []


def test_it_sweeps_away_the_network_for_which_a_killed_agent_made_no_container(
    backend: DockerBackend,
    reopened: Callable[[], DockerBackend],
    engine: APIClient,
    new_spec: NewSpec,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept, lost = new_spec(cluster_size=2), new_spec(cluster_size=2)
    backend.start(kept)
    engine.stop(f"krn-{kept.kernel_id}", timeout=0)

    def die(*arguments: object) -> NoReturn:
        raise KeyboardInterrupt

    with monkeypatch.context() as killing, pytest.raises(KeyboardInterrupt):
        killing.setattr(APIClient, "create_container_from_config", die)
        backend.start(lost)
    assert len(engine.networks(names=[f"bai-s-{lost.session_id}"])) == 1
    monkeypatch.setattr("backendai.agent.backends.docker.networks.network._SETTLING_SECONDS", -1.0)
    reopened().sweep({kept.kernel_id})
    assert engine.networks(names=[f"bai-s-{lost.session_id}"]) == []
    assert len(engine.networks(names=[f"bai-s-{kept.session_id}"])) == 1, "its end is not reported yet"


def test_it_mends_the_network_and_the_rules_that_others_took_away(
    engine: APIClient, deployment: str, tmp_path: Path, new_spec: NewSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up: list[bool] = []
    monkeypatch.setattr(Firewall, "setup", lambda self, *, is_local: set_up.append(is_local))
    late = DockerBackend(tmp_path, deployment=deployment, agent="late")
    spec = new_spec(agent="late")
    late.start(spec)
    assert set_up == [True], "the agent began before its engine did"
    late.start(spec)
    assert set_up == [True]
    late.remove(spec.kernel_id)
    late.dismantle()
    late.sweep(set())
    assert set_up == [True, True]
    assert engine.inspect_network(late._networks.shared)["Driver"] == "bridge"


def test_it_sets_the_rules_once_and_takes_them_away_again() -> None:
    firewall = Firewall(["10.1.2.3"], bridges="baitest-", chains="BAITEST-")

    def rules() -> list[str]:
        return [line for tool in ("iptables", "ip6tables") for line in rules_of(tool)]

    def rules_of(tool: str) -> list[str]:
        listed = subprocess.run([tool, "-w", "5", "-S"], capture_output=True, text=True, check=True).stdout
        return [line for line in listed.splitlines() if "baitest" in line.lower()]

    try:
        firewall.setup(is_local=True)
        once = rules()
        firewall.setup(is_local=True)
        assert rules() == once
        assert firewall.notes() == []
        assert "-A INPUT -i baitest-+ -j BAITEST-INPUT" in once
        assert any("10.1.2.3/32 -j REJECT" in line for line in once)
        for metadata in ("169.254.0.0/16", "168.63.129.16/32", "100.100.100.200/32"):
            assert any(f"{metadata} -j REJECT" in line for line in once)
        if Path("/proc/net/if_inet6").exists():
            assert "-A INPUT -i baitest-+ -j BAITEST-INPUT" in rules_of("ip6tables")
            assert any("fe80::/10 -j REJECT" in line for line in rules_of("ip6tables"))
    finally:
        firewall.remove()
    assert rules() == []
    firewall.remove()


@pytest.fixture
def guest() -> Iterator[str]:
    """The name of a network namespace behind a bridge of this machine, which is fe80::b there."""
    space, bridge = f"baitest-{uuid4().hex[:6]}", f"bait-{uuid4().hex[:6]}"
    commands = [
        f"ip netns add {space}",
        f"ip link add {bridge} type bridge",
        f"ip link add {bridge}h type veth peer name eth0 netns {space}",
        f"ip link set {bridge}h master {bridge} up",
        f"ip link set {bridge} up",
        f"ip -n {space} link set eth0 up",
        f"sysctl -qw net.ipv6.conf.{bridge}.disable_ipv6=0",
        f"ip netns exec {space} sysctl -qw net.ipv6.conf.eth0.disable_ipv6=0",
        f"ip address add fe80::b/64 dev {bridge} nodad",
        f"ip -n {space} address add fe80::a/64 dev eth0 nodad",
    ]
    try:
        for command in commands:
            subprocess.run(command.split(), check=True)
        yield space
    finally:
        subprocess.run(["ip", "link", "del", bridge], capture_output=True)
        subprocess.run(["ip", "netns", "del", space], capture_output=True)


def test_it_keeps_kernels_from_the_node_over_ipv6(guest: str) -> None:
    if not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    server = socket.create_server(("::", 0), family=socket.AF_INET6)
    trial = f"import socket; socket.create_connection(('fe80::b%eth0', {server.getsockname()[1]}), timeout=2)"
    command = ["ip", "netns", "exec", guest, sys.executable, "-I", "-c", trial]

    def reaches() -> bool:
        return subprocess.run(command, capture_output=True).returncode == 0

    firewall = Firewall([], bridges="bait-", chains="BAITEST6-")
    try:
        until(reaches)
        firewall.setup(is_local=True)
        assert not reaches()
    finally:
        firewall.remove()
        server.close()


def test_it_says_what_stays_open_when_the_rules_cannot_be_set() -> None:
    firewall = Firewall([])
    firewall.setup(is_local=False)
    (note,) = firewall.notes()
    assert (note.code, "another machine" in note.message, bool(note.fix)) == ("firewall-missing", True, True)
