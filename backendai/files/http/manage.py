"""Handles the portal's orders: create, change, link, clone, measure, delete and list folders."""

from __future__ import annotations

import os
from typing import Any
from uuid import UUID

from aiohttp import web

from backendai.files.folders import cloning, lifecycle
from backendai.files.folders.jobs import Jobs
from backendai.files.http.serving import TicketedRequest, admit, read_body, whole
from backendai.files.limits import project_quota
from backendai.files.refusals import Refusal, StorageSilent, as_refusal

JOBS: web.AppKey[Jobs] = web.AppKey("jobs", Jobs)
_MEASURED, _ENFORCED = "measured", "enforced"
_MOST_LISTED = 1000


def add_routes(router: web.UrlDispatcher) -> None:
    folder = "/v1/folders/{folder}"
    router.add_get(folder, show)
    router.add_put(folder, create)
    router.add_delete(folder, delete)
    router.add_put(f"{folder}/meta", change_meta)
    router.add_put(f"{folder}/limit", set_limit)
    router.add_put(f"{folder}/link", link)
    router.add_post(f"{folder}/clones", clone)
    router.add_post(f"{folder}/measurements", measure)
    router.add_get("/v1/host", show_host)
    router.add_get("/v1/host/folders", list_folders)


async def show(request: web.Request) -> web.Response:
    """Return the state, version, size and progress of a folder."""
    asked, jobs = admit(request, "manage"), request.app[JOBS]
    told = await asked.host.run(lifecycle.describe, asked.folder_id)
    told |= jobs.describe(asked.host, asked.folder_id)
    return web.json_response({**told, "measuring": jobs.is_measuring(asked.host, asked.folder_id)})


async def create(request: web.Request) -> web.Response:
    """Create a folder. A repeated order changes nothing."""
    asked, body = admit(request, "manage"), await read_body(request)
    await asked.host.run(lifecycle.create, asked.folder_id, asked.ticket.version, _meta(body))
    return web.json_response(await asked.host.run(lifecycle.describe, asked.folder_id), status=201)


async def change_meta(request: web.Request) -> web.Response:
    """Save the folder's meta and its limit."""
    asked, body = admit(request, "manage"), await read_body(request)
    return await _change_meta(request, asked, _meta(body))


async def set_limit(request: web.Request) -> web.Response:
    """Set or remove the limit of a folder."""
    asked, body = admit(request, "manage"), await read_body(request)
    if "bytes" not in body:
        raise Refusal(422, "bad-body", "bytes is missing: a number, or null for no limit.")
    return await _change_meta(request, asked, {"limit": body["bytes"]})


async def link(request: web.Request) -> web.Response:
    """Make a folder show an existing path of the host."""
    asked, body = admit(request, "manage"), await read_body(request)
    path, linkable = body.get("path"), asked.server.linkable
    if not isinstance(path, str):
        raise Refusal(422, "bad-body", "path is missing: an absolute path of the storage host.")
    await asked.host.run(lifecycle.link, asked.folder_id, asked.ticket.version, path, linkable)
    return web.json_response(await asked.host.run(lifecycle.describe, asked.folder_id))


async def delete(request: web.Request) -> web.Response:
    """Remove a folder at once; its data is deleted in the background."""
    asked, jobs = admit(request, "manage"), request.app[JOBS]
    await asked.host.run(lifecycle.set_aside, asked.folder_id, asked.ticket.version)
    state = await asked.host.run(lifecycle.state_of, asked.folder_id)
    if state == lifecycle.BEING_DELETED:
        jobs.remove(asked.host, asked.folder_id)
    return web.json_response({"state": state}, status=202)


async def clone(request: web.Request) -> web.Response:
    """Start a copy of another folder as this folder."""
    asked, body = admit(request, "manage"), await read_body(request)
    try:
        source = UUID(str(body.get("source")))
    except ValueError as error:
        raise Refusal(422, "bad-body", "source is the id of the folder to clone.") from error
    linkable, told = asked.server.linkable, _meta(body)
    await asked.host.run(cloning.order, asked.folder_id, asked.ticket.version, source, linkable, told)
    request.app[JOBS].clone(asked.host, asked.folder_id)
    return web.json_response({"state": lifecycle.CLONING}, status=202)


async def measure(request: web.Request) -> web.Response:
    """Start a measurement of a folder."""
    asked, jobs = admit(request, "manage"), request.app[JOBS]
    told = await asked.host.run(lifecycle.describe, asked.folder_id)
    if told["state"] != lifecycle.READY:
        raise Refusal(404, "no-folder", "This folder is not on this storage host.")
    if not told["linked_path"]:  # linked paths are never measured
        jobs.measure(asked.host, asked.folder_id)
    return web.json_response({"state": told["state"]}, status=202)


async def show_host(request: web.Request) -> web.Response:
    """Return the host's disk space, and the reason if it cannot be used."""
    asked = admit(request, "manage")
    told: dict[str, Any] = {"host": asked.host.name, "quota_mode": _MEASURED, "total_bytes": None, "free_bytes": None}
    try:
        found = await asked.host.run(os.fstatvfs)
        is_enforced = await asked.host.run(project_quota.is_offered)
    except Exception as error:
        if isinstance(error, StorageSilent) or (refusal := as_refusal(error)) is None:
            raise
        return web.json_response({**told, "fault": refusal.message})
    told |= {"total_bytes": found.f_blocks * found.f_frsize, "free_bytes": found.f_bavail * found.f_frsize}
    told["quota_mode"] = _ENFORCED if is_enforced else _MEASURED
    told["measured"] = request.app[JOBS].measured(asked.host)
    return web.json_response({**told, "fault": ""})


async def list_folders(request: web.Request) -> web.Response:
    """Return a page of the folders on a host, whether or not the portal knows them."""
    asked = admit(request, "manage")
    limit = whole(request.query.get("limit"), "limit", _MOST_LISTED, least=1, most=_MOST_LISTED)
    after = request.query.get("after", "")
    return web.json_response(await asked.host.run_long(lifecycle.list_folders, after=after, limit=limit))


async def _change_meta(request: web.Request, asked: TicketedRequest, told: dict[str, Any]) -> web.Response:
    has_joined = await asked.host.run(lifecycle.change_meta, asked.folder_id, asked.ticket.version, told)
    if has_joined:  # a measurement adds existing files to the quota project
        request.app[JOBS].measure(asked.host, asked.folder_id)
    return web.json_response(await asked.host.run(lifecycle.describe, asked.folder_id))


def _meta(body: dict[str, Any]) -> dict[str, Any]:
    meta = body.get("meta", {})
    if not isinstance(meta, dict):
        raise Refusal(422, "bad-body", "meta is an object.")
    return {**meta, **({"limit": body["limit"]} if "limit" in body else {})}
