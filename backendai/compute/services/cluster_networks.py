"""Networks of sessions that lie on several agents: numbers while they are live, and what each node is told of them."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models import QuerySet

from backendai.cluster.capabilities import capabilities_of
from backendai.cluster.models import Agent
from backendai.compute.models import ComputeSession, Kernel
from backendai.compute.services.bulk import among
from backendai.compute.status import LIVE, ClusterMode, Status
from backendai.core import advisory_locks
from backendai.wire.capabilities import Capability
from backendai.wire.cluster_network import (
    ClusterNetwork,
    gateway_address,
    kernel_address,
    most_networks,
    subnet_of,
    vni_of,
)
from backendai.wire.messages import Peer


class Sibling(NamedTuple):
    """A kernel of a session that has several: which, and where."""

    hostname: str
    rank: int
    agent_id: UUID | None
    gateway_url: str


def number_networks(session_ids: Collection[UUID]) -> list[UUID]:
    """Give those of these sessions that may lie on several agents a free number each, unless they have one, and return
    those for which none is left. No statement for no sessions."""
    if not session_ids:
        return []
    wanted = ComputeSession.objects.filter(
        pk__in=among(list(session_ids)), cluster_mode=ClusterMode.MULTI_NODE, cluster_network=None
    )
    ids = list(wanted.order_by("created_at", "pk").values_list("pk", flat=True))
    if not ids:
        return []
    if connection.vendor == "postgresql":  # SQLite has one writer
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [advisory_locks.CLUSTER_NETWORK])
    taken = set(_numbered().values_list("cluster_network", flat=True))
    free = [number for number in range(most_networks(settings.CLUSTER_POOL)) if number not in taken]
    for session_id, number in zip(ids, free, strict=False):
        ComputeSession.objects.filter(pk=session_id).update(cluster_network=number)
    return ids[len(free) :]


def networks_left() -> tuple[int, int]:
    """Return how many networks over several agents there can be, and how many are left; one query. One that a waiting
    session kept from a start that failed counts as left."""
    most = most_networks(settings.CLUSTER_POOL)
    return most, max(0, most - _numbered().exclude(status=Status.PENDING).count())


def siblings_of(session_ids: Collection[UUID]) -> dict[UUID, list[Sibling]]:
    """Return by session its kernels in the order of their ranks; one query, none for no sessions."""
    found: dict[UUID, list[Sibling]] = {}
    if not session_ids:
        return found
    rows = Kernel.objects.filter(session__in=among(list(session_ids))).order_by("session", "rank")
    columns = ("session_id", "hostname", "rank", "agent_id", "agent__gateway_url")
    for session_id, hostname, rank, agent_id, gateway_url in rows.values_list(*columns):
        found.setdefault(session_id, []).append(Sibling(hostname, rank, agent_id, gateway_url or ""))
    return found


def network_for(agent: Agent, kernel: Kernel, siblings: Sequence[Sibling]) -> ClusterNetwork | None:
    """Return what this agent is told of the network of its kernel; None for a session that lies on one agent."""
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
    """Return the kernels of the session with the addresses under which this kernel reaches them, as far as they need
    one: native processes are reached at their nodes."""
    if not siblings:
        return [Peer(hostname=kernel.hostname)]
    if network is None:
        return [Peer(hostname=one.hostname) for one in siblings]
    if Capability.NATIVE in capabilities_of(agent):
        return [
            Peer(hostname=one.hostname, address=None if one.agent_id == agent.pk else _address_of(one.gateway_url))
            for one in siblings
        ]
    subnet = ipaddress.IPv4Network(network.subnet)
    return [Peer(hostname=one.hostname, address=kernel_address(subnet, one.rank)) for one in siblings]


def _numbered() -> QuerySet[ComputeSession]:
    return ComputeSession.objects.filter(status__in=LIVE, cluster_network__isnull=False)


def _address_of(gateway_url: str) -> str:
    """Return under which name other nodes reach a node. The portal's own machine is known to itself as loopback, and to
    others as the portal."""
    host = urlsplit(gateway_url).hostname or ""
    return (urlsplit(settings.DOOR_URL).hostname or "") if _is_loopback(host) else host


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in ("", "localhost")
