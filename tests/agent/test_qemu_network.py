"""What a virtual machine reaches over the network, and what it does not. The packets are real."""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Network
from pathlib import Path
from urllib.request import urlopen
from uuid import uuid4

import pytest
from docker import APIClient

from backendai.agent.backends.qemu.backend import QemuBackend
from backendai.agent.backends.qemu.channel.ask import output_of
from backendai.agent.backends.qemu.channel.frames import program_words
from backendai.agent.backends.qemu.networks.addresses import GuestAddresses, devices_into
from backendai.agent.backends.qemu.networks.network import QemuNetwork
from backendai.agent.settings.qemu import QemuSettings
from backendai.base.wire.capabilities import Capability
from tests.agent.images import ensure_tiny_image
from tests.agent.prerequisites import need_program, need_root
from tests.agent.qemu_bed import EMULATED_START, machine_settings
from tests.agent.specs import make_spec
from tests.patience import until

SMALL = {"cpu": "1", "mem": str(224 * 2**20)}
NEAR, HIDDEN, METADATA, BRIDGED = "10.213.7.2", "10.213.7.3", "169.254.169.254", "10.213.8.2"
INSIDE = GuestAddresses(IPv4Network("198.18.7.0/24"))  # others than a site has that says nothing
HERE = "10.213.7.1"  # this machine's own address there


def test_rules_let_names_be_resolved_and_keep_the_platform_apart() -> None:
    rules = list(QemuNetwork("auto", ["10.1.2.3", "2001:db8::7", "10.9.0.0/16"]).rules())
    own = rules.index("-m addrtype ! --dst-type UNICAST -p tcp -j REJECT --reject-with tcp-reset")
    assert all("--dport 53 -j RETURN" in rule for rule in rules[:own])
    assert all(" -j REJECT" in rule for rule in rules[own:])
    assert "-d 10.1.2.3/32 -p tcp -j REJECT --reject-with tcp-reset" in rules, "programs hear of it at once"
    assert {"-d 10.1.2.3/32 -j REJECT", "-d 10.9.0.0/16 -j REJECT", "-d 169.254.0.0/16 -j REJECT"} <= set(rules)
    assert "-o bai-+ -j REJECT" in rules


def test_a_network_that_is_off_is_none_and_says_so(tmp_path: Path) -> None:
    settings = QemuSettings(root=tmp_path, network="off")
    backend = QemuBackend(tmp_path / "agent", settings, deployment="test", agent="n1")
    backend.sweep(set())
    assert Capability.ISOLATED in backend.capabilities
    (note,) = [note for note in backend.notes() if note.code == "qemu-no-network"]
    assert "BACKENDAI_QEMU_NETWORK is off" in note.message


def test_machines_with_addresses_that_guests_have_inside_are_named(tmp_path: Path) -> None:
    head, default = (
        "Iface Destination Gateway Flags RefCnt Use Metric Mask\n",
        "eth0 00000000 01020A0A 3 0 0 0 00000000\n",
    )
    (tmp_path / "routes").write_text(f"{head}{default}lab1 806433C6 00000000 1 0 0 0 80FFFFFF\n")
    assert devices_into(IPv4Network("198.51.100.0/24"), tmp_path / "routes") == ["lab1"]
    assert devices_into(IPv4Network("198.51.101.0/24"), tmp_path / "routes") == []
    assert devices_into(IPv4Network("198.51.100.0/24"), tmp_path / "none") == []


def test_a_vpn_that_takes_the_default_route_is_no_network_of_machines(tmp_path: Path) -> None:
    halves = ("tun0 00000000 01020A0A 3 0 0 0 00000080\n", "tun0 00000080 01020A0A 3 0 0 0 00000080\n")
    own = "lab1 000033C6 00000000 1 0 0 0 0000FFFF\n"
    (tmp_path / "routes").write_text("".join(["Iface Destination Gateway Flags RefCnt Use Metric Mask\n", *halves]))
    assert devices_into(IPv4Network("198.51.100.0/24"), tmp_path / "routes") == []
    with (tmp_path / "routes").open("a") as routes:
        routes.write(own)
    assert devices_into(IPv4Network("198.51.100.0/24"), tmp_path / "routes") == ["lab1"]


@contextlib.contextmanager
def served(folder: Path, space: str = "") -> Iterator[int]:
    """Serve the folder on all addresses, here or in a network namespace; yields the port."""
    if not space:
        handler = functools.partial(SimpleHTTPRequestHandler, directory=str(folder))
        server = ThreadingHTTPServer(("0.0.0.0", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()
        server.server_close()
        return
    command = ["ip", "netns", "exec", space, sys.executable, "-m", "http.server", "8000", "--directory", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield 8000
        finally:
            process.kill()


@pytest.fixture
def places(tmp_path: Path) -> Iterator[list[str]]:
    """Pages of one machine beside this one by three of its addresses, of one behind a bridge, and of this machine."""
    need_root("only root makes networks")
    need_program("ip", "iproute2")
    mark = uuid4().hex[:6]
    beside, behind, bridge = f"bait1-{mark}", f"bait2-{mark}", f"baitb{mark}"
    commands = [
        f"ip netns add {beside}",
        f"ip link add baitv{mark} type veth peer name eth0 netns {beside}",
        f"ip addr add {HERE}/24 dev baitv{mark}",
        f"ip link set baitv{mark} up",
        f"ip netns add {behind}",
        f"ip link add {bridge} type bridge",
        f"ip link add baitw{mark} type veth peer name eth0 netns {behind}",
        f"ip link set baitw{mark} master {bridge} up",
        f"ip addr add 10.213.8.1/24 dev {bridge}",
        f"ip link set {bridge} up",
        *(f"ip -n {beside} addr add {address}/24 dev eth0" for address in (NEAR, HIDDEN)),
        f"ip -n {beside} addr add {METADATA}/32 dev eth0",
        f"ip -n {beside} link set eth0 up",
        f"ip route add {METADATA}/32 via {NEAR}",
        f"ip -n {behind} addr add {BRIDGED}/24 dev eth0",
        f"ip -n {behind} link set eth0 up",
    ]
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "page").write_text("hello")
    try:
        for command in commands:
            subprocess.run(command.split(), check=True)
        www = tmp_path / "www"
        with served(www, beside), served(www, behind), served(www) as port:
            own = [f"{address}:{port}" for address in (HERE, INSIDE.gateway, INSIDE.name_server)]
            yield [*(f"{address}:8000" for address in (NEAR, HIDDEN, METADATA, BRIDGED)), *own]
    finally:
        for device in (f"baitv{mark}", f"baitw{mark}", bridge):
            subprocess.run(["ip", "link", "del", device], capture_output=True)
        for space in (beside, behind):
            subprocess.run(["ip", "netns", "del", space], capture_output=True)


@pytest.fixture
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QemuBackend]:
    """An agent whose rules are not those of others on this machine."""
    need_program("iptables", "iptables")
    folder = tmp_path_factory.mktemp("machines")
    client = APIClient()
    ensure_tiny_image(client)
    client.close()
    network = QemuNetwork("auto", [HIDDEN], group=61182, chains=f"BAIT-{uuid4().hex[:6]}-")
    settings = replace(machine_settings(folder), guests=INSIDE.guests)
    backend = QemuBackend(folder / "a", settings, deployment="test", agent="n1", network=network)
    yield backend
    for kernel in backend.kernels():
        backend.remove(kernel.kernel_id)
    backend.close()
    network.remove()


@pytest.mark.qemu
@pytest.mark.docker
@pytest.mark.timeout(300)
def test_a_machine_reaches_others_but_no_services_of_this_one_nor_what_is_shielded(
    backend: QemuBackend, places: list[str]
) -> None:
    for place in places[:5]:
        until(lambda place=place: answers_here(place))  # type: ignore[misc]
    spec = make_spec(slots=SMALL, create_timeout=EMULATED_START)
    backend.start(spec)

    def reached() -> list[str]:
        asks = "(printf 'GET /page HTTP/1.0\\r\\n\\r\\n'; sleep 1) | nc -w 5 ${at%:*} ${at#*:} 2>/dev/null | tail -n 1"
        code = f"for at in {' '.join(places)}; do echo $at $( {asks}); done"
        words = program_words(["sh", "-c", code], {})
        lines = output_of(backend._running(spec.kernel_id).path, words)[0].decode().splitlines()
        return [line.split()[0] for line in lines if line.endswith(" hello")]

    assert reached() == [f"{NEAR}:8000"]
    backend.network.remove()
    assert reached() == places[:-1], "the rules are what keeps it out"
    backend.sweep({spec.kernel_id})
    assert reached() == [f"{NEAR}:8000"]


def answers_here(place: str) -> bool:
    with contextlib.suppress(OSError):
        return bool(urlopen(f"http://{place}/page", timeout=2).read() == b"hello")
    return False
