"""A thread-safe client of the portal's API for agents."""

from __future__ import annotations

import json
import time
from email.utils import parsedate_to_datetime
from time import monotonic
from typing import Protocol, TypeVar
from uuid import UUID

import urllib3
from pydantic import ValidationError

from backendai.agent.counts import count_call
from backendai.base.core.errors import PlatformError
from backendai.base.core.messages import Message
from backendai.base.process.connection_faults import connection_failure_text
from backendai.base.wire.broker.messages import BrokerDown, BrokerUp
from backendai.base.wire.images import RegistryAccess
from backendai.base.wire.messages import JoinDown, JoinUp, KernelReport, KernelSpec, SyncDown, SyncUp
from backendai.base.wire.node_jobs import NodeJobReport, NodeJobSpec

S = TypeVar("S", RegistryAccess, NodeJobSpec)

_CONNECT_SECONDS = 3.0
_READ_SECONDS = 15.0
_UPLOAD_SECONDS = 60.0
_CONNECTIONS = 16
_CLOCKS_AGREE_SECONDS = 2.0
_NO_REASON = "The portal gave no reason."


class PortalUnreachable(PlatformError):
    """The portal gave no usable answer. Its state is unknown: try again later."""

    code = "portal-unreachable"


class PortalRefused(PlatformError):
    """The portal refused the request; ``status`` is the HTTP status."""

    code = "portal-refused"

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message, status=status)
        self.status = status


class Portal(Protocol):
    """The portal's methods that the agent calls. Each may raise PortalUnreachable or PortalRefused."""

    def now(self) -> float:
        """Return the portal's time in epoch seconds; tickets expire by its clock."""

    def sync(self, up: SyncUp) -> SyncDown:
        """Send the agent's state to the portal; returns the desired state."""

    def fetch_spec(self, kernel_id: UUID) -> KernelSpec | None:
        """Return a kernel's spec; None if the portal does not want the kernel on this agent."""

    def report(self, report: KernelReport) -> bool:
        """Report a kernel's state; returns whether the report changed anything in the portal."""

    def put_log(self, kernel_id: UUID, generation: int, log: bytes, *, truncated: bool) -> None:
        """Upload the end of a kernel's log."""

    def registry_access(self, kernel_id: UUID) -> RegistryAccess:
        """Return the account for the registry of a kernel's image. Call it only directly before a pull."""

    def fetch_job(self, kind: str, job_id: UUID) -> NodeJobSpec | None:
        """Return a job with its details; None if the portal does not want it of this agent."""

    def report_job(self, report: NodeJobReport) -> bool:
        """Report a job's progress or end; returns whether the portal still wants the job."""


class PortalClient:
    """Implements ``Portal`` over HTTP with persistent connections."""

    def __init__(self, url: str, token: str = "", *, name: str = "") -> None:
        self._root = f"{url.rstrip('/')}/node/v1"
        self._headers = {"Authorization": f"Node {token}"} if token else {}
        if name:
            self._headers["Node-Name"] = name  # so that the portal can log the name of an agent with an unknown token
        self._pool = urllib3.PoolManager(maxsize=_CONNECTIONS, retries=False)
        self._ahead = 0.0

    def now(self) -> float:
        """Return the portal's time in epoch seconds, from this machine's clock and the last answer."""
        return time.time() + self._ahead

    def join(self, up: JoinUp) -> JoinDown:
        """Register this agent; returns its token and the addresses it needs."""
        body = self._send("POST", "/join", up.model_dump_json())
        try:
            return JoinDown.model_validate_json(body)
        except ValidationError as error:
            raise PortalUnreachable("The portal's answer makes no sense: {error}", error=str(error)) from error

    def open_broker(self, up: BrokerUp) -> BrokerDown:
        """Request this agent's broker account; returns the broker's address and the account's name."""
        body = self._send("POST", "/broker", up.model_dump_json())
        try:
            return BrokerDown.model_validate_json(body)
        except ValidationError as error:
            raise PortalUnreachable("The portal's answer makes no sense: {error}", error=str(error)) from error

    def sync(self, up: SyncUp) -> SyncDown:
        """Send the agent's state to the portal; returns the desired state. Blocks up to ``up.wait`` seconds longer than
        other calls."""
        body = self._send("POST", "/sync", up.model_dump_json(), seconds=_READ_SECONDS + up.wait)
        try:
            return SyncDown.model_validate_json(body)
        except ValidationError as error:
            raise PortalUnreachable("The portal's answer makes no sense: {error}", error=str(error)) from error

    def fetch_spec(self, kernel_id: UUID) -> KernelSpec | None:
        """Return a kernel's spec; None if the portal does not want the kernel on this agent."""
        try:
            body = self._send("GET", f"/kernels/{kernel_id}")
            return KernelSpec.model_validate_json(body)
        except PortalRefused as error:
            if error.status == 404:
                return None
            raise
        except ValidationError as error:
            text = "The spec of kernel {kernel_id} makes no sense: {error}"
            raise PortalUnreachable(text, kernel_id=kernel_id, error=str(error)) from error

    def report(self, report: KernelReport) -> bool:
        """Report a kernel's state; returns whether the report changed anything in the portal."""
        answer = self._send("POST", f"/kernels/{report.kernel_id}/report", report.model_dump_json())
        return bool(answer) and json.loads(answer).get("applied") is True

    def put_log(self, kernel_id: UUID, generation: int, log: bytes, *, truncated: bool) -> None:
        """Upload the end of a kernel's log."""
        path = f"/kernels/{kernel_id}/log?generation={generation}&truncated={int(truncated)}"
        self._send("PUT", path, log, kind="application/octet-stream", seconds=_UPLOAD_SECONDS)

    def registry_access(self, kernel_id: UUID) -> RegistryAccess:
        """Return the account for the registry of a kernel's image."""
        return self._secret(RegistryAccess, f"/kernels/{kernel_id}/registry")

    def fetch_job(self, kind: str, job_id: UUID) -> NodeJobSpec | None:
        """Return a job with its details; None if the portal does not want it of this agent."""
        try:
            return self._secret(NodeJobSpec, f"/jobs/{kind}/{job_id}")
        except PortalRefused as error:
            if error.status == 404:
                return None
            raise

    def report_job(self, report: NodeJobReport) -> bool:
        """Report a job's progress or end; returns whether the portal still wants the job."""
        answer = self._send("POST", f"/jobs/{report.kind}/{report.job_id}/report", report.model_dump_json())
        return bool(answer) and json.loads(answer).get("wanted") is True

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.clear()

    def _secret(self, kind: type[S], path: str) -> S:
        """Return an answer that contains a password; errors do not quote it."""
        try:
            return kind.model_validate_json(self._send("GET", path))
        except ValidationError:
            raise PortalUnreachable("The portal's answer to GET {path} makes no sense.", path=path) from None

    def _send(
        self,
        method: str,
        path: str,
        body: str | bytes | None = None,
        *,
        kind: str = "application/json",
        seconds: float = _READ_SECONDS,
    ) -> bytes:
        result = "failed"
        try:
            answer = self._exchange(method, path, body, kind, seconds)
            result = "answered"
        except PortalRefused:
            result = "refused"
            raise
        finally:
            count_call(path, result)
        return answer

    def _exchange(self, method: str, path: str, body: str | bytes | None, kind: str, seconds: float) -> bytes:
        headers = {**self._headers, "Content-Type": kind} if body is not None else self._headers
        timeout, address = urllib3.Timeout(connect=_CONNECT_SECONDS, read=seconds), self._root + path
        began = monotonic()
        try:
            response = self._request(method, address, body=body, headers=headers, timeout=timeout)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise PortalUnreachable(connection_failure_text(self._root, error, monotonic() - began)) from error
        self._note_clock(response.headers.get("Date"))
        if response.status >= 500 or response.status == 429:
            raise PortalUnreachable(
                "{method} {address}: HTTP {status}", method=method, address=address, status=response.status
            )
        if not 200 <= response.status < 300:
            raise PortalRefused(
                Message(
                    "{reason} (HTTP {status} to {method} {address})",
                    reason=_sentence(response.data),
                    status=response.status,
                    method=method,
                    address=address,
                ),
                status=response.status,
            )
        return response.data

    def _request(
        self, method: str, url: str, *, body: str | bytes | None, headers: dict[str, str], timeout: urllib3.Timeout
    ) -> urllib3.BaseHTTPResponse:
        try:
            return self._pool.request(method, url, body=body, headers=headers, timeout=timeout)
        except urllib3.exceptions.ProtocolError:
            # A restarting portal closes persistent connections; every call can be repeated.
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
    """Return the portal's error message. For other servers' answers, the first 200 bytes."""
    try:
        return str(json.loads(body)["detail"])
    except (KeyError, TypeError):
        return _NO_REASON
    except ValueError:
        return body[:200].decode(errors="replace").strip() or _NO_REASON
