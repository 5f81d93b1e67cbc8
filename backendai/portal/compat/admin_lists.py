"""The lists of ``backend.ai admin`` and ``service``: each shows the rows that the caller may see over REST."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.db.models import Prefetch

from backendai.base.core.errors import NotFound
from backendai.domain.accounts.models import Domain, KeyPair, Membership, Project, User
from backendai.domain.catalog.models import Image
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.compute.services.status.ledger import occupied_by_agent
from backendai.domain.serving.models import Endpoint
from backendai.portal.compat.frame import LONGEST_TEXT, Call
from backendai.portal.compat.graph import Root, Values
from backendai.portal.compat.lists import amounts, listed, moment, shown_pair
from backendai.portal.compat.names import id_in

MOST_ROWS = 1000  # of lists that the client asks for as a whole
Shown = Callable[[Any], Values]


def _page(rows: Callable[[User], Any], shown: Shown, column: str = "name") -> Root:
    """Return the root field of a list with pages, whose filters and orders know one column."""
    return lambda call, said: listed(rows(call.user), said, shown, {column: column})


def _all(rows: Callable[[User], Any], shown: Shown) -> Root:
    """Return the root field of a whole list."""
    return lambda call, said: [shown(one) for one in rows(call.user)[:MOST_ROWS]]


def _one(rows: Callable[[User], Any], shown: Shown, argument: str, column: str) -> Root:
    """Return the root field of one row, by an argument."""

    def found(call: Call, said: Values) -> Values:
        text = str(said.get(argument) or "")[:LONGEST_TEXT]
        row = rows(call.user).filter(**{column: id_in(text) if column == "pk" else text}).first()
        if row is None:
            raise NotFound("There is nothing of this name that you may see.")
        return shown(row)

    return found


def _agents(user: User) -> Any:
    return Agent.objects.visible_to(user).registered().select_related("resource_group").order_by("name")


def _agent_list(call: Call, said: Values) -> Values:
    taken = occupied_by_agent()
    rows = _agents(call.user)
    if status := said.get("status"):
        rows = rows.filter(status=str(status)[:LONGEST_TEXT])
    return listed(rows, said, lambda one: _agent(one, taken), {"id": "name", "status": "status"})


def _agent(one: Agent, taken: Mapping[Any, Any] | None = None) -> Values:
    held = (occupied_by_agent() if taken is None else taken).get(one.pk)
    return {
        "id": one.name, "status": one.status, "architecture": one.architecture, "region": "local",
        "addr": one.gateway_url, "scaling_group": one.resource_group.name, "schedulable": one.schedulable,
        "version": one.version, "first_contact": moment(one.created_at), "cpu_cur_pct": 0.0, "mem_cur_bytes": 0,
        "available_slots": amounts(one.capacity), "occupied_slots": amounts(held.to_json() if held else {}),
        "hardware_metadata": "{}", "live_stat": '{"node": {}, "devices": {}}', "local_config": "{}",
        "compute_containers": [],
    }  # fmt: skip


def _images(user: User) -> Any:
    return Image.objects.visible_to(user).prefetch_related("aliases").order_by("name")


def _image(one: Image) -> Values:
    registry, _, rest = one.reference.partition("/")
    return {
        "name": one.name, "humanized_name": one.display_name, "registry": registry if rest else "",
        "architecture": one.architecture, "tag": one.reference.rpartition(":")[2], "digest": one.digest,
        "size_bytes": one.size_bytes or 0, "aliases": [alias.name for alias in one.aliases.all()],
    }  # fmt: skip


def _groups(user: User) -> Any:
    return ResourceGroup.objects.visible_to(user).order_by("name")


def _group(one: ResourceGroup) -> Values:
    return {
        "name": one.name, "description": one.description, "is_active": one.is_active, "is_public": one.is_public,
        "created_at": None, "driver": "static", "driver_opts": "{}", "scheduler": one.sequence, "scheduler_opts": "{}",
        "use_host_network": False, "wsproxy_addr": "", "wsproxy_api_token": "",
    }  # fmt: skip


def _domains(user: User) -> Any:
    return Domain.objects.visible_to(user).order_by("name")


def _domain(one: Domain) -> Values:
    return {
        "name": one.name, "description": "", "is_active": one.is_active, "created_at": moment(one.created_at),
        "total_resource_slots": "{}", "allowed_vfolder_hosts": "{}", "allowed_docker_registries": [],
        "integration_id": None,
    }  # fmt: skip


def _projects(user: User) -> Any:
    return Project.objects.visible_to(user).select_related("domain").order_by("name", "pk")


def _project(one: Project) -> Values:
    return {
        "id": str(one.pk), "name": one.name, "description": "", "is_active": one.is_active,
        "created_at": moment(one.created_at), "domain_name": one.domain.name, "total_resource_slots": "{}",
        "allowed_vfolder_hosts": "{}", "integration_id": None,
    }  # fmt: skip


def _users(user: User) -> Any:
    memberships = Prefetch("memberships", Membership.objects.select_related("project"))
    return User.objects.visible_to(user).select_related("domain").prefetch_related(memberships).order_by("email")


def _user(one: User) -> Values:
    projects = [{"id": str(each.project_id), "name": each.project.name} for each in one.memberships.all()]
    return {
        "uuid": str(one.pk), "username": one.email, "email": one.email, "full_name": one.full_name, "role": one.role,
        "status": "active" if one.is_active else "inactive", "status_info": "", "created_at": moment(one.created_at),
        "need_password_change": False, "domain_name": one.domain.name if one.domain else None, "groups": projects,
        "allowed_client_ip": None, "totp_activated": False, "sudo_session_enabled": False, "main_access_key": "",
    }  # fmt: skip


def _pairs(user: User) -> Any:
    return KeyPair.objects.visible_to(user).select_related("user", "policy").order_by("created_at", "pk")


def _endpoints(user: User) -> Any:
    rows = Endpoint.objects.visible_to(user).filter(deleted_at=None)
    replicas = "replicas__session"
    return rows.select_related("owner", "current__image").prefetch_related(replicas).order_by("name", "pk")


def _endpoint(one: Endpoint) -> Values:
    routings = [
        {"routing_id": str(each.pk), "session": str(each.session_id), "status": each.state, "traffic_ratio": 1.0,
         "endpoint": one.name}
        for each in one.replicas.all() if each.ended_at is None
    ]  # fmt: skip
    return {
        "endpoint_id": str(one.pk), "name": one.name, "image": one.current.image.name if one.current else "",
        "desired_session_count": one.desired, "routings": routings, "session_owner": str(one.owner_id), "url": "",
        "open_to_public": one.is_public, "status": one.wish,
    }  # fmt: skip


ROOTS: dict[str, Root] = {
    "agent_list": _agent_list,
    "agent": _one(_agents, _agent, "agent_id", "name"),
    "images": _all(_images, _image),
    "scaling_groups": _all(_groups, _group),
    "scaling_group": _one(_groups, _group, "name", "name"),
    "domains": _all(_domains, _domain),
    "domain": _one(_domains, _domain, "name", "name"),
    "groups": _all(_projects, _project),
    "group": _one(_projects, _project, "id", "pk"),
    "user_list": _page(_users, _user, "email"),
    "users": _all(_users, _user),
    "keypair_list": _page(_pairs, shown_pair, "is_active"),
    "endpoint_list": _page(_endpoints, _endpoint),
    "endpoint": _one(_endpoints, _endpoint, "endpoint_id", "pk"),
}
