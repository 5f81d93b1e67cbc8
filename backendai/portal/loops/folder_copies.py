"""Copies files into new folders. Each copy has its own thread, as it takes minutes or hours.

Bytes pass from the source through this process to the file server; tickets authorise both. If a worker dies, another
worker continues its copy a minute later.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime

import urllib3
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.domain.compute.models import HomeKeep, Kernel
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.compute.status import Status
from backendai.domain.storage import orders
from backendai.domain.storage.file_server import FileServerError, StorageSilent
from backendai.domain.storage.file_streams import PIECE, receive_folder, send_folder
from backendai.domain.storage.models import Folder, FolderFill
from backendai.domain.storage.services.folder_copies import (
    cancel_fill,
    due_fills,
    fail_fill,
    finish_fill,
    put_off_fill,
    report_fill,
    take_fill,
)
from backendai.domain.storage.status import FolderStatus
from backendai.gates.gateways.tickets import address_of
from backendai.portal.loops.background import Background
from backendai.portal.loops.outages import log_failure

_PATIENCE = urllib3.Timeout(connect=5.0, read=120.0)
_pool = urllib3.PoolManager(num_pools=16, maxsize=2, retries=urllib3.Retry(0, redirect=False), timeout=_PATIENCE)


class HomeGone(UserError):
    """The agent has no home folder of this kernel."""

    code = "home-gone"


def receive_home(kernel: Kernel, generation: int) -> Iterator[bytes]:
    """Yield the home folder of this generation of a kernel as pieces of a tar archive. Raises HomeGone, and
    StorageSilent if the stream breaks off."""
    if kernel.generation != generation or kernel.agent is None:
        raise HomeGone("The session ended before its home was copied.")
    address = address_of(kernel, "files")
    try:
        answer = _pool.request("GET", address.url, headers=address.headers, preload_content=False)
    except urllib3.exceptions.HTTPError as error:
        raise StorageSilent("Agent {agent} is not reachable.", agent=kernel.agent.name) from error
    try:
        if answer.status == 404:
            raise HomeGone(
                "Agent {agent} does not send the home folder: the session has ended there, or the agent is older than "
                "the portal.",
                agent=kernel.agent.name,
            )
        if answer.status != 200:
            raise StorageSilent("Agent {agent} answered {answer}.", agent=kernel.agent.name, answer=answer.status)
        yield from answer.stream(PIECE)
    except urllib3.exceptions.HTTPError as error:
        raise StorageSilent("Agent {agent} interrupted the copy.", agent=kernel.agent.name) from error
    finally:
        answer.close()


logger = logging.getLogger(__name__)

_MOST_AT_ONCE = 2
_REPORT_EVERY = 2.0
_MOST_NAMED = 5
_workers = Background("fill", "the copies into folders failed", logger, most=_MOST_AT_ONCE)


class _Unwanted(Exception):
    """Aborts a copy that was cancelled or that another worker has taken over."""


def begin() -> None:
    """Start a worker thread for waiting copies, unless this process already runs two.

    Further copies are started by these threads, a hint or the next pass.
    """
    _workers.begin(fill_all)


def fill_all(clock: Callable[[], datetime] = timezone.now) -> int:
    """Run waiting copies that no other worker has taken, one after the other; returns how many were tried."""
    worker, tried = f"{socket.gethostname()[:24]}:{os.getpid()}:{threading.get_ident()}", 0
    while fill := next((one for one in due_fills(clock()) if take_fill(one, worker, now=clock())), None):
        fill.taken_by = worker
        _fill(fill, clock)
        tried += 1
    return tried


def _fill(fill: FolderFill, clock: Callable[[], datetime]) -> None:
    keep = HomeKeep.objects.filter(folder=fill.folder_id).select_related("kernel__agent", "session", "user").first()
    try:
        fill.folder.refresh_from_db(fields=["status", "version"])
        if fill.folder.status != FolderStatus.CREATING:
            raise _Unwanted
        orders.order_creation(fill.folder)
        orders.order_limit(fill.folder)  # the limit may have changed since the last try
        result = send_folder(fill.folder, _with_progress(fill, _source(fill.folder, keep), _total(fill.folder), clock))
        if finish_fill(fill, message=_left_out(result), now=clock()) and keep and keep.ends_session:
            with suppress(UserError):  # the session has already ended
                terminate_session(keep.session, keep.user)
    except _Unwanted:
        _stop(fill, clock())
    except HomeGone as error:
        _end_without_home(fill, error.message, clock())
    except StorageSilent as error:
        _put_off(fill, keep, error.message, clock())
    except FileServerError as error:
        fail_fill(fill, error.message, now=clock())
    except Exception as error:
        log_failure(logger, error, "folder %s cannot be filled", fill.folder_id)
        put_off_fill(fill, Message("The copy broke off; the log of the control process says why."), now=clock())


def _source(folder: Folder, keep: HomeKeep | None) -> Iterator[bytes]:
    if keep is not None:
        return receive_home(keep.kernel, keep.generation)
    if folder.cloned_from is None or folder.cloned_from.status != FolderStatus.READY:
        raise FileServerError("The folder to copy no longer exists.", status=404)
    return receive_folder(folder.cloned_from)


def _total(folder: Folder) -> int | None:
    return folder.cloned_from.used_bytes if folder.cloned_from else None


def _with_progress(
    fill: FolderFill, archive: Iterator[bytes], total: int | None, clock: Callable[[], datetime]
) -> Iterator[bytes]:
    """Yield the pieces of the archive, reporting progress every two seconds. Raises _Unwanted if the copy is cancelled
    or taken over."""
    sent, reported_at = 0, -_REPORT_EVERY
    for piece in archive:
        if time.monotonic() - reported_at >= _REPORT_EVERY:
            reported_at = time.monotonic()
            if not report_fill(fill, fill.taken_by, sent, total, now=clock()):
                raise _Unwanted
        yield piece
        sent += len(piece)


def _stop(fill: FolderFill, now: datetime) -> None:
    """Delete the result of a cancelled copy, unless another worker has taken it over."""
    if FolderFill.objects.filter(pk=fill.pk, taken_by=fill.taken_by).exists():
        cancel_fill(fill, now=now)


def _put_off(fill: FolderFill, keep: HomeKeep | None, message: str, now: datetime) -> None:
    """Schedule a further try. If the source is the home of an ended session, finish the copy instead."""
    if keep is not None:
        keep.session.refresh_from_db(fields=["status"])
        if keep.session.status != Status.RUNNING:
            _end_without_home(fill, Message("The session ended before its home was copied."), now)
            return
    put_off_fill(fill, message, now=now)


def _end_without_home(fill: FolderFill, message: str, now: datetime) -> None:
    """Finish the copy with the files copied so far, as the home no longer exists. If there are none, the folder becomes
    ERROR."""
    fill.refresh_from_db(fields=["sent_bytes"])
    if fill.sent_bytes:
        result = Message("Not all files of the home are here. {reason}", reason=message)
        finish_fill(fill, message=result, now=now)
    else:
        fail_fill(fill, message, now=now)


def _left_out(result: dict[str, object]) -> str:
    """Return a sentence that names at most five of the files that were not copied; empty if all were copied."""
    refused = result.get("refused")
    if not isinstance(refused, list) or not refused:
        return ""
    names, left = [str(one.get("path", "")) for one in refused[:_MOST_NAMED]], len(refused) - _MOST_NAMED
    if left <= 0:
        return Message(
            "Not copied, as devices, sockets, links that lead out, unreadable files or ones with large holes: {names}.",
            names=names,
        )
    return Message(
        "Not copied, as devices, sockets, links that lead out, unreadable files or ones with large holes: "
        "{names} and {left} more.",
        names=names,
        left=left,
    )
