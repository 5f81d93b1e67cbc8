"""The node's side of the portal's node API: one small client, safe to use from every thread."""

from __future__ import annotations

import json
import time
from email.utils import parsedate_to_datetime
from time import monotonic
from typing import Protocol, TypeVar
from uuid import UUID

import urllib3
from pydantic import ValidationError

from backendai.core.connection_faults import connection_failure_text
from backendai.core.errors import PlatformError
from backendai.wire.broker_messages import BrokerDown, BrokerUp
from backendai.wire.messages import JoinDown, JoinUp, KernelReport, KernelSpec, SyncDown, SyncUp
from backendai.wire.node_jobs import NodeJobReport, NodeJobSpec
from backendai.wire.pulls import RegistryAccess

S = TypeVar("S", RegistryAccess, NodeJobSpec)

_CONNECT_SECONDS = 3.0
_READ_SECONDS = 15.0
_UPLOAD_SECONDS = 60.0
_CONNECTIONS = 16
_CLOCKS_AGREE_SECONDS = 2.0
_NO_REASON = "The portal gave no reason."


class PortalUnreachable(PlatformError):
    """The portal gave no usable answer: nothing is known, try again later."""

    code = "portal-unreachable"


class PortalRefused(PlatformError):
    """The portal understood and said no; ``status`` is the HTTP status."""

    code = "portal-refused"

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message, status=status)
        self.status = status


class Portal(Protocol):
    """What the agent asks of the portal. Every call may raise PortalUnreachable or PortalRefused."""

    def now(self) -> float:
        """Return the portal's time in epoch seconds: tickets are written by its clock."""

    def sync(self, up: SyncUp) -> SyncDown:
        """Send the agent's state to the portal; returns the desired state."""

    def fetch_spec(self, kernel_id: UUID) -> KernelSpec | None:
        """Return the spec of a kernel that is wanted on this node, None when it is not (any more)."""

    def report(self, report: KernelReport) -> bool:
        """Tell what became of a kernel; returns whether it changed anything."""

    def put_log(self, kernel_id: UUID, generation: int, log: bytes, *, truncated: bool) -> None:
        """Hand over the end of a kernel's output for keeping."""

    def registry_access(self, kernel_id: UUID) -> RegistryAccess:
        """Return the account for the registry of a kernel's image; ask only when the image is about to be pulled."""

    def fetch_job(self, kind: str, job_id: UUID) -> NodeJobSpec | None:
        """Return a job with its work, None when it is not wanted (any more)."""

    def report_job(self, report: NodeJobReport) -> bool:
        """Tell how far a job is; returns whether it is still wanted."""


class PortalClient:
    """The portal over HTTP, with connections kept open. Implements ``Portal``."""

    def __init__(self, url: str, token: str = "", *, name: str = "") -> None:
        self._root = f"{url.rstrip('/')}/node/v1"
        self._headers = {"Authorization": f"Node {token}"} if token else {}
        if name:
            self._headers["Node-Name"] = name  # so that the portal's log can name a node whose token it does not know
        self._pool = urllib3.PoolManager(maxsize=_CONNECTIONS, retries=False)
        self._ahead = 0.0

    def now(self) -> float:
        """Return the portal's time, as far as its last answer told."""
        return time.time() + self._ahead

    def join(self, up: JoinUp) -> JoinDown:
        """Introduce this node; returns its token and where everything is."""
        body = self._send("POST", "/join", up.model_dump_json())
        try:
            return JoinDown.model_validate_json(body)
        except ValidationError as error:
            raise PortalUnreachable(f"The portal's answer makes no sense: {error}") from error

    def open_broker(self, up: BrokerUp) -> BrokerDown:
        """Ask for this node's account at the broker; returns where that is, and the account's name."""
        body = self._send("POST", "/broker", up.model_dump_json())
        try:
            return BrokerDown.model_validate_json(body)
        except ValidationError as error:
            raise PortalUnreachable(f"The portal's answer makes no sense: {error}") from error

    def sync(self, up: SyncUp) -> SyncDown:
        """Send the agent's state to the portal; returns the desired state. Waits up to ``up.wait`` seconds longer than
        other calls.
        """
        body = self._send("POST", "/sync", up.model_dump_json(), seconds=_READ_SECONDS + up.wait)
        try:
            return SyncDown.model_validate_json(body)
        except ValidationError as error:
            raise PortalUnreachable(f"The portal's answer makes no sense: {error}") from error

    def fetch_spec(self, kernel_id: UUID) -> KernelSpec | None:
        """Return the spec, or None when the portal does not want this kernel here."""
        try:
            body = self._send("GET", f"/kernels/{kernel_id}")
            return KernelSpec.model_validate_json(body)
        except PortalRefused as error:
            if error.status == 404:
                return None
            raise
        except ValidationError as error:
            raise PortalUnreachable(f"The spec of kernel {kernel_id} makes no sense: {error}") from error

    def report(self, report: KernelReport) -> bool:
        """Tell what became of a kernel; returns whether it changed anything."""
        answer = self._send("POST", f"/kernels/{report.kernel_id}/report", report.model_dump_json())
        return bool(answer) and json.loads(answer).get("applied") is True

    def put_log(self, kernel_id: UUID, generation: int, log: bytes, *, truncated: bool) -> None:
        """Upload the end of a kernel's output."""
        path = f"/kernels/{kernel_id}/log?generation={generation}&truncated={int(truncated)}"
        self._send("PUT", path, log, kind="application/octet-stream", seconds=_UPLOAD_SECONDS)

    def registry_access(self, kernel_id: UUID) -> RegistryAccess:
        """Return the account for the registry of a kernel's image."""
        return self._secret(RegistryAccess, f"/kernels/{kernel_id}/registry")

    def fetch_job(self, kind: str, job_id: UUID) -> NodeJobSpec | None:
        """Return a job with its work, or None when the portal does not want it of this agent."""
        try:
            return self._secret(NodeJobSpec, f"/jobs/{kind}/{job_id}")
        except PortalRefused as error:
            if error.status == 404:
                return None
            raise

    def report_job(self, report: NodeJobReport) -> bool:
        """Tell how far a job is; returns whether it is still wanted."""
        answer = self._send("POST", f"/jobs/{report.kind}/{report.job_id}/report", report.model_dump_json())
        return bool(answer) and json.loads(answer).get("wanted") is True

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.clear()

    def _secret(self, kind: type[S], path: str) -> S:
        """Return an answer that holds a password: what is wrong with it is not quoted."""
        try:
            return kind.model_validate_json(self._send("GET", path))
        except ValidationError:
            raise PortalUnreachable(f"The portal's answer to GET {path} makes no sense.") from None

    def _send(
        self,
        method: str,
        path: str,
        body: str | bytes | None = None,
        *,
        kind: str = "application/json",
        seconds: float = _READ_SECONDS,
    ) -> bytes:
        headers = {**self._headers, "Content-Type": kind} if body is not None else self._headers
        timeout = urllib3.Timeout(connect=_CONNECT_SECONDS, read=seconds)
        began = monotonic()
        try:
            response = self._request(method, self._root + path, body=body, headers=headers, timeout=timeout)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise PortalUnreachable(connection_failure_text(self._root, error, monotonic() - began)) from error
        self._note_clock(response.headers.get("Date"))
        if response.status >= 500 or response.status == 429:
            raise PortalUnreachable(f"{method} {self._root}{path}: HTTP {response.status}")
        if not 200 <= response.status < 300:
            said = f"{_sentence(response.data)} (HTTP {response.status} to {method} {self._root}{path})"
            raise PortalRefused(said, status=response.status)
        return response.data

    def _request(
        self, method: str, url: str, *, body: str | bytes | None, headers: dict[str, str], timeout: urllib3.Timeout
    ) -> urllib3.BaseHTTPResponse:
        try:
            return self._pool.request(method, url, body=body, headers=headers, timeout=timeout)
        except urllib3.exceptions.ProtocolError:
            # A portal that restarts closes connections that we keep; all calls may be repeated.
            return self._pool.request(method, url, body=body, headers=headers, timeout=timeout)

    def _note_clock(self, date: str | None) -> None:
        if date is None:
            return
        try:
            ahead = parsedate_to_datetime(date).timestamp() - time.time()
        except ValueError:
            return
        self._ahead = ahead if abs(ahead) > _CLOCKS_AGREE_SECONDS else 0.0


def _sentence(body: bytes) -> str:
    """Return what the portal says in words; of an answer that is not its own, the beginning."""
    try:
        return str(json.loads(body)["detail"])
    except (KeyError, TypeError):
        return _NO_REASON
    except ValueError:
        return body[:200].decode(errors="replace").strip() or _NO_REASON
