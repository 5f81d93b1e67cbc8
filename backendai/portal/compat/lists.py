"""The lists of the command line: sessions, folders and the key pair of the caller as root fields of GraphQL."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from django.db.models import Q, QuerySet

from backendai.base.core.errors import NotFound
from backendai.domain.accounts.models import KeyPair, User
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.status import Status
from backendai.domain.storage.models import Folder
from backendai.domain.storage.querysets import FolderQuerySet
from backendai.domain.storage.status import FolderStatus
from backendai.portal.compat.frame import LONGEST_TEXT, Call
from backendai.portal.compat.graph import Root, Values
from backendai.portal.compat.names import id_in

LARGEST_PAGE, LONGEST_FILTER = 100, 1024
_CONDITION = re.compile(r'\(*\s*(\w+)\s*(==|!=|like|ilike)\s*"([^"]*)"\s*\)*')
_RIGHTS = {"view": "ro", "edit": "rw", "manage": "wd"}
_STATUSES = frozenset(Status.values)


def listed(rows: QuerySet[Any], said: Values, shown: Callable[[Any], Values], known: Mapping[str, str]) -> Values:
    """Return a page of a list. ``known``: the names of filters and orders, with the columns that they mean."""
    start, most = _whole(said.get("offset"), 0), min(_whole(said.get("limit"), 20), LARGEST_PAGE)
    for name, operator, text in _CONDITION.findall(str(said.get("filter") or "")[:LONGEST_FILTER]):
        if column := known.get(name):
            wanted = Q(**{f"{column}__icontains": text.strip("%")}) if "like" in operator else Q(**{column: text})
            rows = rows.exclude(wanted) if operator == "!=" else rows.filter(wanted)
    order = str(said.get("order") or "")[:LONGEST_TEXT]
    if column := known.get(order.lstrip("+-")):
        rows = rows.order_by(f"-{column}" if order.startswith("-") else column, "pk")
    return {"items": [shown(one) for one in rows[start : start + most]], "total_count": rows.count()}


def moment(at: Any) -> str | None:
    """Return a time as text, None for none."""
    return at.isoformat() if at else None


def amounts(slots: Mapping[str, Any]) -> str:
    """Return amounts as the JSON text that the client expects."""
    return json.dumps({name: str(amount) for name, amount in slots.items()})


def shown_pair(pair: KeyPair) -> Values:
    """Return a key pair, without its secret."""
    user = pair.user
    return {
        "user_id": user.email, "email": user.email, "full_name": user.full_name, "access_key": pair.pk,
        "secret_key": "", "is_active": pair.is_active, "is_admin": user.is_superadmin,
        "created_at": moment(pair.created_at),
        "last_used": moment(pair.last_used_at), "resource_policy": pair.policy.name if pair.policy else "",
        "rate_limit": pair.rate_limit, "concurrency_used": 0, "projects": [],
        "user_info": {"full_name": user.full_name},
    }  # fmt: skip


def _keypair(call: Call, said: Values) -> Values:
    return shown_pair(KeyPair.objects.select_related("user", "policy").get(pk=call.pair.pk))


def _sessions(call: Call, said: Values) -> Values:
    rows = _with_parts(call.user).order_by("-created_at", "-id")
    if said.get("access_key") or not call.user.is_superadmin:
        rows = rows.filter(owner=call.user)
    if statuses := str(said.get("status") or "")[:LONGEST_FILTER]:
        rows = rows.filter(status__in=_STATUSES.intersection(statuses.split(",")))
    known = {"name": "name", "status": "status", "created_at": "created_at", "type": "session_type"}
    return listed(rows, said, _session, known)


def _one_session(call: Call, said: Values) -> Values:
    found = _with_parts(call.user).filter(pk=id_in(str(said.get("id", "")))).first()
    if found is None:
        raise NotFound("No such session, or you may not see it.")
    return _session(found)


def _with_parts(user: User) -> Any:
    rows = ComputeSession.objects.visible_to(user).select_related("image", "project__domain", "owner", "resource_group")
    return rows.defer("spec", "environ").prefetch_related("kernels__agent", "kernels__image", "depends_on", "mounts")


def _session(one: ComputeSession) -> Values:
    kernels = list(one.kernels.all())
    changed = one.ended_at or one.terminating_at or one.started_at or one.created_at
    slots, mounts = amounts(one.total.to_json()), [mount.folder_name for mount in one.mounts.all()]
    return {
        "id": str(one.pk), "session_id": str(one.pk), "name": one.name, "type": one.session_type, "tag": "",
        "main_kernel_id": str(kernels[0].pk) if kernels else None, "image": one.image.name,
        "architecture": one.image.architecture, "group_name": one.project.name, "group_id": str(one.project_id),
        "domain_name": one.project.domain.name, "access_key": one.access_key, "user_email": one.owner.email,
        "full_name": one.owner.full_name, "status": one.status, "status_info": str(one.reason_text),
        "status_data": "{}", "status_changed": moment(changed), "created_at": moment(one.created_at),
        "terminated_at": moment(one.ended_at), "starts_at": moment(one.starts_at), "result": one.result,
        "startup_command": one.startup_command, "scaling_group": one.resource_group.name,
        "cluster_mode": one.cluster_mode, "cluster_size": one.cluster_size, "service_ports": "[]", "idle_checks": "{}",
        "occupying_slots": slots, "occupied_slots": slots, "requested_slots": slots, "mounts": mounts,
        "vfolder_mounts": mounts, "containers": [_kernel(each, one) for each in kernels],
        "dependencies": [{"name": each.name, "id": str(each.pk)} for each in one.depends_on.all()],
    }  # fmt: skip


def _kernel(one: Kernel, session: ComputeSession) -> Values:
    image = one.image or session.image
    return {
        "id": str(one.pk), "cluster_role": one.role, "cluster_idx": one.index, "cluster_hostname": one.hostname,
        "session_id": str(session.pk), "image": image.name, "registry": "", "status": one.status,
        "status_info": str(one.status_message), "status_data": "{}",
        "status_changed": moment(one.ended_at or one.started_at or one.created_at),
        "agent": one.agent.name if one.agent else None, "container_id": one.container_id, "resource_opts": "{}",
        "occupied_slots": amounts(one.slots), "preopen_ports": session.preopen_ports, "live_stat": "{}",
        "last_stat": "{}",
    }  # fmt: skip


def _folders(narrow: Callable[[FolderQuerySet, User], Any]) -> Root:
    def answer(call: Call, said: Values) -> Values:
        known = {"name": "name", "created_at": "created_at", "usage_mode": "usage", "status": "status"}
        if "usage_mode" in str(said.get("filter")):  # their word for it is in capitals
            said = {**said, "filter": str(said["filter"]).lower()}
        return listed(narrow(folders_of(call.user), call.user).order_by("name", "pk"), said, shown_folder, known)

    return answer


def folders_of(user: User) -> FolderQuerySet:
    """Return the folders that the user may see and that are not in the trash."""
    rows: FolderQuerySet = Folder.objects.visible_to(user).select_related("host", "user", "project")
    return rows.exclude(status__in=[FolderStatus.TRASHED, FolderStatus.DELETING])


def shown_folder(one: Any) -> Values:
    """Return a folder of ``visible_to``, for GraphQL and REST."""
    email, project, kind = (
        one.user and one.user.email,
        one.project and one.project.name,
        "group" if one.project_id else "user",
    )
    return {
        "id": one.pk.hex, "name": one.name, "host": one.host.name, "created_at": moment(one.created_at),
        "status": one.status.lower(), "creator": email or "", "user": str(one.user_id) if one.user_id else None,
        "group": str(one.project_id) if one.project_id else None, "user_email": email, "group_name": project,
        "permission": _RIGHTS[one.rights], "is_owner": one.rights == "manage", "ownership_type": kind, "type": kind,
        "usage_mode": one.usage, "cloneable": one.is_cloneable, "numFiles": one.used_files or 0,
        "num_files": one.used_files or 0, "cur_size": one.used_bytes or 0, "used_bytes": one.used_bytes or 0,
        "max_size": one.limit_bytes, "max_files": 0, "unmanaged_path": None, "last_used": None,
        "quota_scope_id": f"{'project' if one.project_id else 'user'}:{one.project_id or one.user_id}",
    }  # fmt: skip


def _whole(value: Any, default: int) -> int:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return min(max(value, 0), 10**9) if is_number else default


ROOTS: dict[str, Root] = {
    "keypair": _keypair,
    "compute_session_list": _sessions,
    "compute_session": _one_session,
    "vfolder_list": _folders(lambda rows, user: rows),
    "vfolder_own_list": _folders(lambda rows, user: rows.filter(user=user)),
    "vfolder_invited_list": _folders(lambda rows, user: rows.filter(project=None).exclude(user=user)),
    "vfolder_project_list": _folders(lambda rows, user: rows.exclude(project=None)),
}
