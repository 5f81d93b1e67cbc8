"""Bridges of several nodes joined into one: what is for every kernel reaches every node, in any order."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from backendai.agent.backends.docker.networks import cluster as docker_cluster
from backendai.base.wire.cluster_network import ClusterNetwork
from tests.system.test_engine_kill import need_root_and_programs

pytestmark = pytest.mark.docker

BRIDGE = "bai-test-join"
OTHERS = ["192.0.2.7", "192.0.2.8"]
NETWORK = ClusterNetwork(vni=77, subnet="10.99.0.0/26", gateway="10.99.0.62", address="10.99.0.1", remotes=OTHERS)


def run(command: str) -> str:
    return subprocess.run(command.split(), capture_output=True, text=True, check=True).stdout


@pytest.fixture
def device() -> Iterator[str]:
    """The device that joins a bridge with those of two other nodes."""
    need_root_and_programs()
    run(f"ip link add {BRIDGE} type bridge")
    try:
        docker_cluster.join(BRIDGE, NETWORK)
        (device,) = run(f"ls /sys/class/net/{BRIDGE}/brif").split()  # other tests add devices of their own meanwhile
        yield device
    finally:
        run(f"ip link del {BRIDGE}")
        docker_cluster.sweep()
    assert device not in run("ls /sys/class/net").split()


def flooded(device: str) -> list[str]:
    lines = [line.split() for line in run(f"bridge fdb show dev {device}").splitlines()]
    return sorted(line[line.index("dst") + 1] for line in lines if line[0] == "00:00:00:00:00:00")


def test_it_floods_to_every_other_node_and_saying_so_again_changes_nothing(device: str) -> None:
    assert flooded(device) == OTHERS
    docker_cluster.join(BRIDGE, NETWORK)
    assert flooded(device) == OTHERS


def test_a_node_that_spoke_first_is_flooded_to_as_well(device: str) -> None:
    run(f"bridge fdb del 00:00:00:00:00:00 dev {device} dst {OTHERS[0]}")
    run(f"bridge fdb append 02:42:0a:58:00:01 dev {device} dst {OTHERS[0]}")  # as learned from its first frame
    docker_cluster.join(BRIDGE, NETWORK)
    assert flooded(device) == OTHERS
