"""Finds an API server and credentials for it: from a kubeconfig or a pod's service account."""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from backendai.agent.backends.base import BackendError

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PLUGIN_SECONDS = 30.0
_TOKEN_SECONDS = 60.0  # Kubernetes renews a pod's token file long before the token expires
NO_ACCESS = "kubernetes-access"


@dataclass(frozen=True)
class ApiAccess:
    """``token`` is called for every request and may return "". ``inside``: this process runs in the cluster."""

    server: str
    namespace: str
    context: ssl.SSLContext | None
    token: Callable[[], str]
    inside: bool = False

    def headers(self) -> dict[str, str]:
        """Return the headers with the credentials."""
        token = self.token()
        return {"Authorization": f"Bearer {token}"} if token else {}


def find_access(kubeconfig: Path | None, context: str = "", *, environ: Mapping[str, str] = os.environ) -> ApiAccess:
    """Return the access from the configured kubeconfig, else the pod's service account, else the default kubeconfig.
    Raises BackendError with the reason."""
    if kubeconfig is None and (_ACCOUNT / "token").exists() and environ.get("KUBERNETES_SERVICE_HOST"):
        return _of_pod(environ)
    path = kubeconfig or Path(environ.get("KUBECONFIG", "").partition(":")[0] or Path.home() / ".kube/config")
    try:
        said: Any = yaml.safe_load(path.read_text())
        return _of_file(said, path.parent, context)
    except OSError as error:
        raise BackendError(
            "The kubeconfig {path} cannot be read: {error}.", path=path, error=error.strerror, code=NO_ACCESS
        ) from error
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise BackendError(
            "The kubeconfig {path} is not usable: {error}.", path=path, error=str(error)[:200], code=NO_ACCESS
        ) from error


def _of_pod(environ: Mapping[str, str]) -> ApiAccess:
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    host = f"[{host}]" if ":" in host else host
    return ApiAccess(
        f"https://{host}:{port}",
        (_ACCOUNT / "namespace").read_text().strip(),
        ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt")),
        _from_file(_ACCOUNT / "token"),
        inside=True,
    )


def _of_file(said: Any, folder: Path, context: str) -> ApiAccess:
    name = context or said.get("current-context") or ""
    chosen = _named(said, "contexts", name, "context")
    cluster = _named(said, "clusters", chosen["cluster"], "cluster")
    user = _named(said, "users", chosen["user"], "user")
    return ApiAccess(
        str(cluster["server"]).rstrip("/"),
        str(chosen.get("namespace") or ""),
        _tls(cluster, user, folder) if str(cluster["server"]).startswith("https") else None,
        _token(user, folder),
    )


def _named(said: Any, kind: str, name: str, inner: str) -> dict[str, Any]:
    for one in said.get(kind) or []:
        if one["name"] == name:
            return dict(one[inner] or {})
    raise KeyError(f"there is no {inner} {name!r}")


def _tls(cluster: dict[str, Any], user: dict[str, Any], folder: Path) -> ssl.SSLContext:
    data = _bytes(cluster, "certificate-authority", folder)
    context = ssl.create_default_context(cadata=data.decode() if data else None)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    certificate, key = _bytes(user, "client-certificate", folder), _bytes(user, "client-key", folder)
    if certificate and key:
        with tempfile.TemporaryDirectory() as private:  # ssl reads certificates only from files
            for name, content in (("crt", certificate), ("key", key)):
                (Path(private) / name).write_bytes(content)
            context.load_cert_chain(f"{private}/crt", f"{private}/key")
    return context


def _bytes(said: dict[str, Any], name: str, folder: Path) -> bytes:
    if inline := said.get(f"{name}-data"):
        return base64.b64decode(inline)
    return (folder / said[name]).read_bytes() if said.get(name) else b""


def _token(user: dict[str, Any], folder: Path) -> Callable[[], str]:
    if user.get("tokenFile"):
        return _from_file(folder / user["tokenFile"])
    if user.get("exec"):
        return _Plugin(dict(user["exec"]), folder).token
    token = str(user.get("token") or "")
    return lambda: token


def _from_file(path: Path) -> Callable[[], str]:
    kept, read_at = "", -_TOKEN_SECONDS

    def token() -> str:
        nonlocal kept, read_at
        if time.monotonic() - read_at >= _TOKEN_SECONDS:
            try:
                kept, read_at = path.read_text().strip(), time.monotonic()
            except OSError as error:
                raise BackendError(
                    "The token {path} cannot be read: {error}.", path=path, error=error.strerror, code=NO_ACCESS
                ) from error
        return kept

    return token


class _Plugin:
    """Gets a token from the program that a kubeconfig names, again after it has expired."""

    def __init__(self, said: dict[str, Any], folder: Path) -> None:
        self._said, self._folder = said, folder
        self._token, self._until = "", 0.0
        self._lock = threading.Lock()

    def token(self) -> str:
        with self._lock:
            if time.time() >= self._until:
                self._ask()
            return self._token

    def _ask(self) -> None:
        command = str(self._said["command"])
        command = str(self._folder / command) if "/" in command else command
        more = {str(one["name"]): str(one["value"]) for one in self._said.get("env") or []}
        about: dict[str, Any] = {"kind": "ExecCredential", "apiVersion": self._said.get("apiVersion"), "spec": {}}
        try:
            answer = subprocess.run(
                [command, *map(str, self._said.get("args") or [])],
                env={**os.environ, **more, "KUBERNETES_EXEC_INFO": json.dumps(about)},
                capture_output=True,
                check=True,
                timeout=_PLUGIN_SECONDS,
            )
            status = json.loads(answer.stdout)["status"]
            self._token = str(status["token"])
        except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
            text = "The program {command} of the kubeconfig gives no token: {error}."
            raise BackendError(text, command=command, error=str(error)[:200], code=NO_ACCESS) from error
        ends = status.get("expirationTimestamp")
        self._until = datetime.fromisoformat(ends).timestamp() - _TOKEN_SECONDS if ends else time.time() + 600
