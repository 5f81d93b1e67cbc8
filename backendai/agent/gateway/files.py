"""The gateway's route for a kernel's home folder: all its files as one tar archive, for requests with a ticket."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from uuid import UUID

from aiohttp import web

from backendai.agent.backends.abilities import HomeProviding
from backendai.agent.backends.base import Backend, BackendError, KernelGone
from backendai.base.paths import packing
from backendai.base.paths.packing import Tar
from backendai.base.paths.tree_walk import select
from backendai.base.wire.tickets import Ticket, TicketRefused

logger = logging.getLogger(__name__)

_WHOLE_HOME: list[tuple[bytes, ...]] = [()]


class FileRoutes:
    """Serves the route. ``admit`` returns a request's ticket or raises."""

    def __init__(self, backend: Backend, admit: Callable[[web.Request], Ticket]) -> None:
        self._backend, self._admit = backend, admit

    def add_to(self, router: web.UrlDispatcher) -> None:
        router.add_get("/kernels/{id}/files", self._archive, allow_head=False)

    async def _archive(self, request: web.Request) -> web.StreamResponse:
        """Send the home folder as an archive. A file that breaks off aborts the response, so that no client takes a
        part for the whole; the receiver names what is left out."""
        kernel_id = self._kernel(request)
        stream = packing.pack(select(await asyncio.to_thread(self._open_home, kernel_id), _WHOLE_HOME), Tar(pipes=True))
        response = web.StreamResponse(headers={"Content-Type": "application/x-tar", "Cache-Control": "no-store"})
        response.enable_chunked_encoding()
        try:
            data = await asyncio.to_thread(_gather, stream)
            await response.prepare(request)
            while data:
                await response.write(data)
                data = await asyncio.to_thread(_gather, stream)
            await response.write_eof()
        except OSError as error:
            if not isinstance(error, ConnectionError):
                logger.warning("the home folder of kernel %s is not sent whole: %s", kernel_id, error)
            raise
        finally:
            with contextlib.suppress(ValueError):  # the generator still runs in a thread
                stream.close()  # type: ignore[attr-defined]
        return response

    def _kernel(self, request: web.Request) -> UUID:
        try:
            return self._admit(request).kernel_id
        except TicketRefused as error:
            raise web.HTTPForbidden(text=error.message) from error
        except KernelGone as error:
            raise web.HTTPNotFound(text=error.message) from error

    def _open_home(self, kernel_id: UUID) -> int:
        try:
            folder = self._backend.home_folder(kernel_id) if isinstance(self._backend, HomeProviding) else None
            if folder is None:
                raise web.HTTPNotFound(text="The home folder cannot be read from here.")
            return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except KernelGone as error:
            raise web.HTTPNotFound(text=error.message) from error
        except BackendError as error:
            raise web.HTTPServiceUnavailable(text=error.message) from error
        except OSError as error:
            raise web.HTTPNotFound(text=f"The home folder cannot be opened: {error.strerror}.") from error


def _gather(stream: Iterator[bytes]) -> bytes:
    return packing.gather(stream)
