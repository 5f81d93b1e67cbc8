"""The networks of kernels: one shared bridge per deployment for single kernels, one bridge per cluster session."""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from docker.errors import APIError, NotFound

from backendai.agent.backends.base import StartFailed
from backendai.agent.backends.docker.engine import PREFIX, Engine, words_of
from backendai.agent.backends.docker.networks import cluster as docker_cluster
from backendai.base.wire.cluster_network import DEFAULT_POOL, ClusterNetwork, gateway_address, kernel_address
from backendai.base.wire.messages import KernelSpec

logger = logging.getLogger(__name__)

BRIDGES = "bai-"
_SESSION_PREFIX = f"{BRIDGES}s-"
_SHARED_BITS, _SESSION_BITS = 22, 26  # a Linux bridge has at most 1024 ports; sessions are small
_SETTLING_SECONDS = 60.0


class DockerNetworks:
    """Creates and removes one deployment's networks, with addresses from ``pool``, as the engine has too few."""

    def __init__(self, engine: Engine, pool: str | None) -> None:
        self._engine = engine
        self._pool = ipaddress.ip_network(pool or DEFAULT_POOL)
        self._making = threading.Lock()
        self.shared = BRIDGES + _short(engine.deployment, 8)

    def name_for(self, spec: KernelSpec) -> str:
        """Return the name of the kernel's network."""
        return session_network(spec.session_id) if spec.cluster_size > 1 else self.shared

    def ensure_for(self, spec: KernelSpec) -> None:
        """Create the kernel's network if it does not exist."""
        if spec.cluster_size == 1:
            self.ensure_shared()
        elif spec.network is None:
            self._ensure(self.name_for(spec), _bridge_of(spec.session_id), spec.session_id)
        else:
            self._ensure_between_nodes(spec.session_id, spec.network)

    def addressed(self, spec: KernelSpec) -> KernelSpec:
        """Return the spec with the addresses of all kernels of its session. None are added for a single kernel, and in
        a network of an older agent, whose gateway has the first address."""
        known = {peer.address for peer in spec.peers}
        if spec.cluster_size == 1 or known != {None}:
            return spec
        found = self._engine.client.inspect_network(self.name_for(spec))["IPAM"]["Config"][0]
        subnet = ipaddress.ip_network(found["Subnet"])
        if subnet.version != 4 or found.get("Gateway") != gateway_address(subnet, 0):
            return spec
        peers = [peer.model_copy(update={"address": kernel_address(subnet, peer.rank)}) for peer in spec.peers]
        return spec.model_copy(update={"peers": peers})

    def ensure_shared(self) -> None:
        """Create the deployment's shared network, whose containers cannot reach each other, if it does not exist."""
        self._ensure(self.shared, self.shared, None)

    def leave(self, container: dict[str, Any]) -> None:
        """Remove the session network of a removed container, unless other kernels use it."""
        name = container["HostConfig"]["NetworkMode"]
        if name.startswith(_SESSION_PREFIX):
            self._remove(name)
            docker_cluster.sweep()

    def sweep(self, live_sessions: set[UUID], *, now: datetime | None = None) -> None:
        """Remove networks of sessions without kernels here. A network that the engine cannot remove stays for the next
        sweep."""
        client = self._engine.client
        for network in client.networks(filters={"label": [f"{PREFIX}deployment={self._engine.deployment}"]}):
            session = (network["Labels"] or {}).get(f"{PREFIX}session")
            if session and UUID(session) not in live_sessions and _is_settled(network, now or datetime.now(UTC)):
                try:
                    self._remove(network["Id"])
                except APIError as error:
                    logger.warning("network %s cannot be removed now: %s", network["Name"], words_of(error))
        docker_cluster.sweep()

    def remove_shared(self) -> None:
        """Remove the shared network unless kernels use it."""
        self._remove(self.shared)

    def _remove(self, name: str) -> None:
        try:
            self._engine.client.remove_network(name)
        except NotFound:
            pass
        except APIError as error:
            if error.status_code not in (403, 409):  # 403: the network has active endpoints
                raise

    def _ensure_between_nodes(self, session_id: UUID, network: ClusterNetwork) -> None:
        """Create the session's network with the addresses that its other agents use, and connect it with theirs."""
        name, bridge = session_network(session_id), _bridge_of(session_id)
        mtu = docker_cluster.mtu_for(network)
        with self._making:
            if self._gateway_of(name) not in (None, network.gateway):
                self._remove(name)  # a network of an earlier placement, whose address another agent now uses
            if self._gateway_of(name) is None:
                addresses = {"Subnet": network.subnet, "Gateway": network.gateway}
                if not self._make(name, bridge, addresses, session_id, mtu=mtu):
                    raise StartFailed(
                        "Addresses of {subnet} are in use on this agent: set others in BACKENDAI_CLUSTER_POOL.",
                        subnet=network.subnet,
                        code="cluster-network-failed",
                    )
            docker_cluster.join(bridge, network)

    def _ensure(self, name: str, bridge: str, session_id: UUID | None) -> None:
        with self._making:
            if self._exists(name):
                return
            for subnet in self._free_subnets(_SESSION_BITS if session_id else _SHARED_BITS):
                if self._make(name, bridge, _addresses(subnet) if session_id else {"Subnet": subnet}, session_id):
                    return
        raise StartFailed(
            "No free addresses are left in the network pool {pool}. Set a larger one in BACKENDAI_NETWORK_POOL, or "
            "remove networks of earlier platforms: bin/clean-engine lists them.",
            pool=self._pool,
            code="network-pool-exhausted",
        )

    def _exists(self, name: str) -> bool:
        return self._gateway_of(name) is not None

    def _gateway_of(self, name: str) -> str | None:
        """Return this machine's address in a network; None if the network does not exist."""
        try:
            found = self._engine.client.inspect_network(name)
        except NotFound:
            return None
        return str(found["IPAM"]["Config"][0].get("Gateway", ""))

    def _make(
        self, name: str, bridge: str, addresses: dict[str, str], session_id: UUID | None, *, mtu: int = 0
    ) -> bool:
        """Create a network; returns False if another network has just taken the addresses."""
        labels = {f"{PREFIX}deployment": self._engine.deployment}
        options = {"com.docker.network.bridge.name": bridge}
        if mtu:
            options["com.docker.network.driver.mtu"] = str(mtu)
        if session_id:
            labels[f"{PREFIX}session"] = str(session_id)
        else:
            options["com.docker.network.bridge.enable_icc"] = "false"
        try:
            self._engine.client.create_network(
                name, "bridge", options, {"Config": [addresses]}, check_duplicate=True, labels=labels
            )
        except APIError as error:
            if "overlap" in str(error.explanation).lower():
                return False
            if not self._exists(name):  # another agent on the same engine may have created it
                raise
        return True

    def _free_subnets(self, bits: int) -> Iterator[str]:
        taken = [
            ipaddress.ip_network(config["Subnet"])
            for network in self._engine.client.networks()
            for config in (network.get("IPAM") or {}).get("Config") or []
            if config.get("Subnet")
        ]
        for subnet in self._pool.subnets(new_prefix=max(bits, self._pool.prefixlen)):
            if not any(subnet.version == other.version and subnet.overlaps(other) for other in taken):
                yield str(subnet)


def _addresses(subnet: str) -> dict[str, str]:
    network = ipaddress.ip_network(subnet)
    return {"Subnet": subnet} | ({"Gateway": gateway_address(network, 0)} if network.version == 4 else {})


def session_network(session_id: UUID) -> str:
    """Return the name of a session's own network."""
    return f"{_SESSION_PREFIX}{session_id}"


def _bridge_of(session_id: UUID) -> str:
    return BRIDGES + _short(str(session_id), 11)


def _short(name: str, length: int) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:length]


def _is_settled(network: dict[str, Any], now: datetime) -> bool:
    """Return whether a network is over 60 s old. Younger ones may still wait for their first container."""
    created = datetime.fromisoformat(network["Created"][:19] + "+00:00")
    return abs((now - created).total_seconds()) > _SETTLING_SECONDS
