"""Access to the container engine: one API client per thread, a deadline per call, BackendError for all errors."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any
from uuid import UUID

import requests
import urllib3
from docker import APIClient
from docker.errors import APIError, DockerException, NotFound

from backendai.agent.backends.base import BackendError, KernelGone

PREFIX = "backendai."
CALL_SECONDS = 60.0
UNREACHABLE = "engine-unreachable"  # the code of a BackendError without an answer of the engine
_REMOVAL_SECONDS = 60.0
_GONE = "This kernel does not run any more."
_DEFAULT_URL = "unix:///var/run/docker.sock"
_NO_ANSWER = (DockerException, requests.RequestException, urllib3.exceptions.HTTPError, OSError)


class Engine:
    """One container engine, for one agent of one deployment. Thread-safe."""

    def __init__(self, url: str | None, deployment: str, agent: str) -> None:
        self.url = url or os.environ.get("DOCKER_HOST") or _DEFAULT_URL
        self.deployment = deployment
        self.agent = agent
        self._version: str | None = None
        self._own = threading.local()
        self._clients: list[APIClient] = []

    @property
    def socket_path(self) -> str | None:
        """The path of the engine's unix socket; None if the engine is reached over the network."""
        return self.url.removeprefix("unix://") if self.url.startswith("unix://") else None

    @property
    def client(self) -> APIClient:
        """This thread's API client; use it inside ``asking``."""
        client: APIClient | None = getattr(self._own, "client", None)
        if client is None:
            client = APIClient(base_url=self.url, version=self._version or "auto", timeout=CALL_SECONDS)
            client.trust_env = self.socket_path is None  # a unix socket needs no proxy, and the look-up takes time
            self._version = client.api_version
            self._own.client = client
            self._clients.append(client)
        return client

    @property
    def api_version(self) -> str:
        """The API version that client and engine have agreed on."""
        return self._version or str(self.client.api_version)

    @contextmanager
    def asking(self, *, seconds: float = CALL_SECONDS) -> Iterator[APIClient]:
        """Yield the client with a deadline per call; turns all errors into BackendError."""
        try:
            client = self.client
            before, client.timeout = client.timeout, seconds
            try:
                yield client
            finally:
                client.timeout = before  # restore the value of an outer ``asking``
        except APIError as error:
            raise BackendError("The container engine refused: {words}", words=words_of(error)) from error
        except _NO_ANSWER as error:
            raise BackendError(
                "The container engine does not answer: {error}", error=str(error), code=UNREACHABLE
            ) from error

    def labels(self) -> dict[str, str]:
        """Return the labels of all objects of this deployment and agent."""
        return {f"{PREFIX}deployment": self.deployment, f"{PREFIX}agent": self.agent}

    def label_filter(self) -> list[str]:
        """Return the engine's filter for this agent's objects."""
        return [f"{name}={value}" for name, value in self.labels().items()]

    def inspect(self, name: str) -> dict[str, Any] | None:
        """Return the inspected container with this name or id, of any owner; None if there is none."""
        try:
            found: dict[str, Any] = self.client.inspect_container(name)
        except NotFound:
            return None
        return found

    def image(self, reference: str) -> dict[str, Any] | None:
        """Return the inspected image; None if the engine does not have it."""
        try:
            found: dict[str, Any] = self.client.inspect_image(reference)
        except NotFound:
            return None
        return found

    def find(self, kernel_id: UUID) -> dict[str, Any] | None:
        """Return a kernel's inspected container; None if there is none or it belongs to others."""
        found = self.inspect(container_name(kernel_id))
        return found if found is not None and self.owns(found) else None

    def running(self, kernel_id: UUID) -> dict[str, Any]:
        """Return a running kernel's inspected container. Raises KernelGone."""
        found = self.find(kernel_id)
        if found is None or not found["State"]["Running"]:
            raise KernelGone(_GONE)
        return found

    def make_exec(self, kernel_id: UUID, command: list[str], *, starts: bool = False, **options: Any) -> str:
        """Create an exec in a kernel's container, and start it detached if it ``starts``; returns its id. Raises
        KernelGone."""
        try:
            made = str(self.client.exec_create(container_name(kernel_id), command, **options)["Id"])
            if starts:
                self.client.exec_start(made, detach=True)
        except APIError as error:
            if error.status_code in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                raise KernelGone(_GONE) from error
            raise
        return made

    def listed(self, *, running: bool = False, sizes: bool = False) -> list[dict[str, Any]]:
        """Return the engine's entries for all containers of this agent's kernels. ``sizes`` adds ``SizeRw``, which is
        slow.

        Labels alone do not identify a kernel: an image committed from a kernel passes them on to other containers.
        """
        filters = {"label": [*self.label_filter(), f"{PREFIX}kernel"]}
        found = self.client.containers(all=not running, size=sizes, filters=filters)
        return [entry for entry in found if f"/krn-{entry['Labels'].get(f'{PREFIX}kernel')}" in (entry["Names"] or [])]

    def has_file(self, container_id: str, path: str, *, seconds: float = CALL_SECONDS) -> bool:
        """Return whether the file system of a container, running or not, has this path. Use it inside ``asking``."""
        url = f"{self.client.base_url}/v{self.client.api_version}/containers/{container_id}/archive"
        status: int = self.client.head(url, params={"path": path}, timeout=seconds).status_code
        return status != HTTPStatus.NOT_FOUND

    def owns(self, container: dict[str, Any]) -> bool:
        """Return whether an inspected container belongs to this deployment and agent."""
        labels = container["Config"]["Labels"] or {}
        return all(labels.get(name) == value for name, value in self.labels().items())

    def discard(self, container_id: str, *, seconds: float = _REMOVAL_SECONDS) -> None:
        """Kill and remove a container, and wait until its name is free. Raises BackendError, also after ``seconds`` in
        total."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            with self.asking(seconds=min(left, self._patience())) as client:
                try:
                    client.remove_container(container_id, force=True, v=True)
                except NotFound:
                    return
                except APIError as error:
                    if error.status_code != 409:  # 409: another call is removing it
                        raise
                else:
                    return
            time.sleep(0.05)
        raise BackendError("A container was still being removed after {seconds} seconds.", seconds=round(seconds))

    def close(self) -> None:
        """Close the connections of all threads."""
        for client in self._clients:
            client.close()

    def _patience(self) -> float:
        client: APIClient | None = getattr(self._own, "client", None)
        return client.timeout if client is not None else CALL_SECONDS


def container_name(kernel_id: UUID) -> str:
    """Return the name of a kernel's container. As names are unique, a kernel starts only once."""
    return f"krn-{kernel_id}"


def words_of(error: APIError) -> str:
    """Return the engine's error message."""
    return str(error.explanation or error).strip().rstrip(".")
