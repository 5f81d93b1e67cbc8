"""Sends and receives whole folders as tar streams."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from typing import Any

import urllib3
from django.conf import settings

from backendai.base.wire.folder_tickets import TicketRights, sign_folder_ticket
from backendai.domain.storage.file_server import FileServerError, StorageSilent
from backendai.domain.storage.models import Folder

PIECE = 2**20
_PATIENCE = urllib3.Timeout(connect=30.0, read=120.0)  # a sync of many files may take long
_LARGEST_ANSWER = 8 * 2**20
_pool = urllib3.PoolManager(num_pools=16, maxsize=2, retries=urllib3.Retry(0, redirect=False), timeout=_PATIENCE)


def receive_folder(folder: Folder) -> Iterator[bytes]:
    """Yield all files of a folder as a tar archive. Raises FileServerError, and StorageSilent if the stream breaks
    off."""
    answer = _ask("GET", folder, "/archive?format=tar&pipes=1", "view")
    try:
        if answer.status != 200:
            raise _refusal(folder, answer.status, answer.read(_LARGEST_ANSWER))
        yield from answer.stream(PIECE)
    except urllib3.exceptions.HTTPError as error:
        raise StorageSilent("Storage host {host} interrupted the copy.", host=folder.host.name) from error
    finally:
        answer.close()


def send_folder(folder: Folder, archive: Iterable[bytes]) -> dict[str, Any]:
    """Unpack a tar archive into a folder, and return the counts ``written``, ``skipped`` and ``refused``. Equal files
    are skipped. Raises FileServerError, and StorageSilent if the stream breaks off."""
    answer = _ask("PUT", folder, "/archive?overwrite=skip-equal", "edit", archive)
    try:
        content = answer.read(_LARGEST_ANSWER)
    except urllib3.exceptions.HTTPError as error:
        raise StorageSilent("Storage host {host} interrupted the copy.", host=folder.host.name) from error
    finally:
        answer.close()
    if answer.status != 200:
        raise _refusal(folder, answer.status, content)
    told: dict[str, Any] = json.loads(content)
    return told


def _ask(
    method: str, folder: Folder, path: str, rights: TicketRights, body: Iterable[bytes] | None = None
) -> urllib3.BaseHTTPResponse:
    ticket = sign_folder_ticket(
        settings.TICKET_KEY,
        host=folder.host.name,
        folder_id=folder.pk,
        version=folder.version,
        rights=rights,
        now=time.time(),
    )
    url = f"{folder.host.address.rstrip('/')}/v1/folders/{folder.pk}{path}"
    headers = {"Authorization": f"Bearer {ticket}", "Content-Type": "application/x-tar"}
    try:
        return _pool.request(method, url, body=body, headers=headers, preload_content=False)
    except urllib3.exceptions.HTTPError as error:
        raise StorageSilent("Storage host {host} does not answer.", host=folder.host.name) from error


def _refusal(folder: Folder, status: int, content: bytes) -> FileServerError:
    try:
        told = json.loads(content)
        message, code = str(told["message"]), str(told["code"])
    except (ValueError, KeyError, TypeError):
        message, code = f"The file server answered {status}.", "storage-refused"
    if status in (401, 500, 502, 503, 504):
        return StorageSilent("Storage host {host}: {problem}", host=folder.host.name, problem=message, code=code)
    return FileServerError(message, status=status, code=code)
