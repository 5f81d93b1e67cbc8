"""Numbers the networks of sessions with kernels on several agents, and describes a network for each agent."""

from __future__ import annotations

import ipaddress
import zlib
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models import QuerySet

from backendai.base.core.slots import Slots
from backendai.base.db import advisory_locks
from backendai.base.db.bulk import among
from backendai.base.wire.capabilities import Capability
from backendai.base.wire.cluster_network import (
    ClusterNetwork,
    Peer,
    gateway_address,
    kernel_address,
    most_networks,
    subnet_of,
    vni_of,
)
from backendai.domain.cluster.capabilities import capabilities_of, reported
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.services.placing.cluster_access import processes_of, ssh_port_of
from backendai.domain.compute.status import LIVE, ClusterMode, Status


class Sibling(NamedTuple):
    """One kernel of a cluster session: its role, rank and amounts, and the agent that runs it (None: not placed)."""

    kernel_id: UUID
    role: str
    hostname: str
    rank: int
    amounts: Slots
    agent_id: UUID | None
    gateway_url: str
    is_native: bool


def number_networks(session_ids: Collection[UUID]) -> list[UUID]:
    """Give a network number to sessions that can use several agents and have no number yet. Returns the ids of sessions
    for which no number is free. On PostgreSQL a lock is held until the transaction ends."""
    if not session_ids:
        return []
    wanted = ComputeSession.objects.filter(
        pk__in=among(list(session_ids)), cluster_mode=ClusterMode.MULTI_NODE, cluster_network=None
    )
    ids = list(wanted.order_by("created_at", "pk").values_list("pk", flat=True))
    if not ids:
        return []
    # Other deployments on the same machines begin elsewhere, so that their subnets rarely meet.
    free = _free_numbers(zlib.crc32(settings.DEPLOYMENT.encode()))
    for session_id, number in zip(ids, free, strict=False):
        ComputeSession.objects.filter(pk=session_id).update(cluster_network=number)
    return ids[len(free) :]


def next_number(number: int) -> int | None:
    """Return the free network number after this one, None if there is none. On PostgreSQL a lock is held until the
    transaction ends; while a placement holds it, the number stays.

    The caller has locked sessions, which a placement locks after this lock: to wait for it could be a deadlock.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [advisory_locks.CLUSTER_NETWORK])
            if not cursor.fetchone()[0]:
                return number
    return next(iter(_free_numbers(number + 1)), None)


def networks_left() -> tuple[int, int]:
    """Return how many networks can exist, and how many of them are free. A pending session that keeps a number from an
    earlier placement is not counted. One query."""
    most = most_networks(settings.CLUSTER_POOL)
    return most, max(0, most - _numbered().exclude(status=Status.PENDING).count())


def siblings_of(session_ids: Collection[UUID]) -> dict[UUID, list[Sibling]]:
    """Return the kernels of each session, sorted by rank. One query; none for no sessions."""
    found: dict[UUID, list[Sibling]] = {}
    if not session_ids:
        return found
    rows = Kernel.objects.filter(session__in=among(list(session_ids))).order_by("session", "rank")
    columns = ("session_id", "pk", "role", "hostname", "rank", "slots", "agent_id")
    of_agent = ("agent__gateway_url", "agent__capabilities", "agent__backend")
    for session_id, *row in rows.values_list(*columns, *of_agent):
        found.setdefault(session_id, []).append(_sibling(*row))
    return found


def network_for(agent: Agent, kernel: Kernel, siblings: Sequence[Sibling]) -> ClusterNetwork | None:
    """Return the network that the agent creates for this kernel; None if its session is on one agent."""
    number = kernel.session.cluster_network
    nodes = list(dict.fromkeys(sibling.agent_id for sibling in siblings))
    if number is None or len(nodes) < 2 or agent.pk not in nodes:
        return None
    subnet = subnet_of(settings.CLUSTER_POOL, number)
    own = _address_of(agent.gateway_url)
    addresses = dict.fromkeys(_address_of(one.gateway_url) for one in siblings if one.agent_id != agent.pk)
    return ClusterNetwork(
        vni=vni_of(settings.DEPLOYMENT, number),
        subnet=str(subnet),
        gateway=gateway_address(subnet, nodes.index(agent.pk)),
        address=kernel_address(subnet, kernel.rank),
        remotes=[address for address in addresses if address != own],
    )


def peers_of(agent: Agent, kernel: Kernel, siblings: Sequence[Sibling], network: ClusterNetwork | None) -> list[Peer]:
    """Return every kernel of the session with the address at which this kernel reaches it.

    An address is None without a network. A native process reaches other kernels at the addresses of their agents.
    """
    if not siblings:
        return [Peer(hostname=kernel.hostname)]
    native = Capability.NATIVE in capabilities_of(agent)
    return [_peer(one, _address_for(one, agent, network, native=native)) for one in siblings]


def _address_for(one: Sibling, agent: Agent, network: ClusterNetwork | None, *, native: bool) -> str | None:
    if network is None:
        return None
    if native:
        return None if one.agent_id == agent.pk else _address_of(one.gateway_url)
    return kernel_address(ipaddress.IPv4Network(network.subnet), one.rank)


def _peer(one: Sibling, address: str | None) -> Peer:
    return Peer(
        hostname=one.hostname,
        address=address,
        role=one.role,
        rank=one.rank,
        slots=processes_of(one.amounts),
        ssh_port=ssh_port_of(one.kernel_id, native=one.is_native),
    )


def _sibling(
    kernel_id: UUID,
    role: str,
    hostname: str,
    rank: int,
    slots: dict[str, Any],
    agent_id: UUID | None,
    gateway_url: str | None,
    capabilities: Sequence[str] | None,
    backend: str | None,
) -> Sibling:
    native = agent_id is not None and Capability.NATIVE in reported(capabilities, backend or "")
    return Sibling(kernel_id, role, hostname, rank, Slots.parse(slots), agent_id, gateway_url or "", native)


def _free_numbers(first: int) -> list[int]:
    """Return the numbers without a session, in their order from ``first`` on, the lowest after the highest."""
    if connection.vendor == "postgresql":  # SQLite has one writer
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [advisory_locks.CLUSTER_NETWORK])
    taken = set(_numbered().values_list("cluster_network", flat=True))
    most = most_networks(settings.CLUSTER_POOL)
    return [number for place in range(most) if (number := (first + place) % most) not in taken]


def _numbered() -> QuerySet[ComputeSession]:
    return ComputeSession.objects.filter(status__in=LIVE, cluster_network__isnull=False)


def _address_of(gateway_url: str) -> str:
    """Return the host at which other agents reach the agent with this gateway. An agent on the portal's machine reports
    a loopback address, which is replaced by the portal's host."""
    host = urlsplit(gateway_url).hostname or ""
    return (urlsplit(settings.DOOR_URL).hostname or "") if _is_loopback(host) else host


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in ("", "localhost")
