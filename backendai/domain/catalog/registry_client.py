"""The Docker Registry HTTP API, read with little trust: limited answers, limited time, and no host but those that an
administrator has named."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urljoin, urlsplit

import urllib3

from backendai.base.core.errors import PlatformError
from backendai.base.core.image_names import is_digest
from backendai.base.core.messages import Message
from backendai.base.process.connection_faults import connection_failure_text

LARGEST_ANSWER = 4 * 2**20
_MOST_PAGES, _PAGE = 200, 100
_TIMEOUT = urllib3.Timeout(connect=5.0, read=15.0)
_INDEXES = ("application/vnd.docker.distribution.manifest.list.v2+json", "application/vnd.oci.image.index.v1+json")
_MANIFESTS = ("application/vnd.docker.distribution.manifest.v2+json", "application/vnd.oci.image.manifest.v1+json")
_ANSWERS = {401: Message("The registry rejected the account"), 403: Message("The account may not read this"),
            404: Message("Not found")}  # fmt: skip
_ACCEPT = ", ".join((*_MANIFESTS, *_INDEXES))
_CHALLENGE = re.compile(r'([a-z]+)="([^"]*)"')
_NEXT = re.compile(r'<([^>]+)>\s*;\s*rel="?next"?')
_MOST_HOPS = 3


class RegistryError(PlatformError):
    """The registry gave no usable answer; the message is for administrators and holds no secret."""

    code = "registry-error"


class NotInRegistry(RegistryError):
    """The registry has nothing under this name."""


class Unreachable(RegistryError):
    """No answer came from the registry."""


class DeletesNothing(RegistryError):
    """The registry lets nobody delete."""


@dataclass(frozen=True, slots=True)
class FoundImage:
    """One tag: the digest that pins it, and what its configuration says. No architecture: for several."""

    repository: str
    tag: str
    digest: str
    architecture: str
    size_bytes: int
    labels: dict[str, str] = field(default_factory=dict)


class RegistryClient:
    """Reads one registry, and takes manifests out of it. Account and tokens go to ``url`` only, and where its challenge
    sends for a token if that host is among ``other_hosts``."""

    def __init__(
        self, url: str, *, username: str = "", password: str = "", verify_tls: bool = True, other_hosts: str = ""
    ) -> None:
        self._url, self._username, self._password = url, username, password
        self._hosts = {urlsplit(url).netloc.lower(), *other_hosts.lower().split()}
        self._pool = urllib3.PoolManager(
            cert_reqs="CERT_REQUIRED" if verify_tls else "CERT_NONE", retries=False, timeout=_TIMEOUT
        )
        self._tokens: dict[str, str] = {}

    def repositories(self) -> Iterator[str]:
        """Yield what its catalogue names."""
        for page in self._pages(f"/v2/_catalog?n={_PAGE}", "registry:catalog:*"):
            yield from _texts(page.get("repositories"))

    def harbor_repositories(self, project: str) -> Iterator[str]:
        """Yield the repositories of a project, by Harbor's own interface."""
        for number in range(1, _MOST_PAGES):
            path = f"/api/v2.0/projects/{quote(project, safe='')}/repositories?page={number}&page_size={_PAGE}"
            rows = self._json(path, "")
            names = [row.get("name") for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
            yield from _texts(names)
            if len(names) < _PAGE:
                return

    def tags(self, repository: str) -> Iterator[str]:
        """Yield the tags of a repository."""
        for page in self._pages(f"/v2/{_path(repository)}/tags/list?n={_PAGE}", _pull(repository)):
            yield from _texts(page.get("tags"))

    def look_at(self, repository: str, tag: str) -> FoundImage:
        """Return what the tag stands for now. Raises RegistryError."""
        body = self._manifest(repository, tag)
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        manifest, architecture = _parsed(body), None
        if isinstance(manifest.get("manifests"), list):
            chosen, architecture = _one_of(manifest["manifests"])
            manifest = _parsed(self._manifest(repository, chosen))
        config = self._config(repository, manifest)
        labels = (config.get("config") or {}).get("Labels") or {}
        return FoundImage(
            repository=repository,
            tag=tag,
            digest=digest,
            architecture=str(config.get("architecture", "")) if architecture is None else architecture,
            size_bytes=_size(manifest),
            labels={str(name)[:255]: str(value)[:4096] for name, value in labels.items()}
            if isinstance(labels, Mapping)
            else {},
        )

    def digest_of(self, repository: str, tag: str) -> str | None:
        """Return the digest of what the tag stands for now, counted here, not as a header says; None: no tag."""
        try:
            return f"sha256:{hashlib.sha256(self._manifest(repository, tag)).hexdigest()}"
        except NotInRegistry:
            return None

    def delete(self, repository: str, digest: str) -> None:
        """Take a manifest out, with every tag that stands for it; one that is not there is no error. Raises
        RegistryError."""
        path = f"/v2/{_path(repository)}/manifests/{quote(digest, safe=':')}"
        status, _, body = self._answer("DELETE", path, f"repository:{repository}:delete", "application/json")
        if status in (405, 501) or (status == 400 and b"UNSUPPORTED" in body):
            raise DeletesNothing("The registry does not allow deletion (HTTP {status}).", status=status)
        if status in (401, 403):
            raise RegistryError("The account may not delete there (HTTP {status}).", status=status)
        if status not in (200, 202, 204, 404):
            raise RegistryError(_words(status, path))

    def _manifest(self, repository: str, name: str) -> bytes:
        body = self._get(f"/v2/{_path(repository)}/manifests/{quote(name, safe=':')}", _pull(repository), _ACCEPT)[0]
        _check_digest(body, name)
        return body

    def _config(self, repository: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
        digest = str((manifest.get("config") or {}).get("digest", ""))
        if not is_digest(digest):
            raise RegistryError("The manifest has a type that is not supported.")
        body = self._get(f"/v2/{_path(repository)}/blobs/{digest}", _pull(repository))[0]
        _check_digest(body, digest)
        return _parsed(body)

    def _pages(self, path: str, scope: str) -> Iterator[dict[str, Any]]:
        for _ in range(_MOST_PAGES):
            body, headers = self._get(path, scope)
            yield _parsed(body)
            following = _NEXT.search(headers.get("Link", ""))
            if following is None:
                return
            target = urlsplit(urljoin(self._url + path, following[1]))
            if target.netloc.lower() != urlsplit(self._url).netloc.lower():
                raise RegistryError("The next page is on another host, {netloc}.", netloc=target.netloc[:80])
            path = target.path + (f"?{target.query}" if target.query else "")

    def _json(self, path: str, scope: str) -> Any:
        try:
            return json.loads(self._get(path, scope)[0])
        except ValueError as error:
            raise RegistryError("The registry answered with something that is not JSON.") from error

    def _get(self, path: str, scope: str, accept: str = "application/json") -> tuple[bytes, Mapping[str, str]]:
        status, answered, body = self._answer("GET", path, scope, accept)
        if status != 200:
            raise (NotInRegistry if status == 404 else RegistryError)(_words(status, path))
        return body, answered

    def _answer(self, method: str, path: str, scope: str, accept: str) -> tuple[int, Mapping[str, str], bytes]:
        """Ask with what is known of the account for this scope, and once more with what the registry then wants."""
        headers = {"Accept": accept} | self._credentials(scope)
        status, answered, body = self._ask(self._url + path, headers, follow=method == "GET", method=method)
        if status == 401 and "Authorization" not in headers:
            self._tokens[scope] = self._answer_to(answered.get("WWW-Authenticate", ""), scope)
            headers |= self._credentials(scope)
            status, answered, body = self._ask(self._url + path, headers, follow=method == "GET", method=method)
        return status, answered, body

    def _credentials(self, scope: str) -> dict[str, str]:
        return {"Authorization": self._tokens[scope]} if scope in self._tokens else {}

    def _answer_to(self, challenge: str, scope: str) -> str:
        """Return the header that a challenge asks for. Raises RegistryError."""
        basic = base64.b64encode(f"{self._username}:{self._password}".encode()).decode()
        kind, _, rest = challenge.partition(" ")
        if kind.lower() == "basic" and self._username:
            return f"Basic {basic}"
        said = dict(_CHALLENGE.findall(rest))
        if kind.lower() != "bearer" or "realm" not in said:
            raise RegistryError("The registry requires credentials (HTTP 401).")
        wanted = {"service": said.get("service", ""), "scope": said.get("scope") or scope}
        realm, query = said["realm"], urlencode({name: value for name, value in wanted.items() if value})
        address = f"{realm}{'&' if '?' in realm else '?'}{query}"
        headers = {"Authorization": f"Basic {basic}"} if self._username else {}
        status, _, body = self._ask(address, headers, follow=False)
        if status != 200:
            raise RegistryError("The registry issued no token for this account (HTTP {status}).", status=status)
        given = _parsed(body)
        return f"Bearer {given.get('token') or given.get('access_token') or ''}"

    def _ask(
        self, url: str, headers: Mapping[str, str], *, follow: bool = True, method: str = "GET"
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Ask once; a redirect is followed to known hosts only, and to another one without credentials."""
        for _ in range(_MOST_HOPS):
            self._check_host(url)
            status, answered, body = self._request(method, url, headers)
            if status not in (301, 302, 303, 307, 308) or not follow:
                return status, answered, body
            target = urljoin(url, answered.get("Location", ""))
            if urlsplit(target)[:2] != urlsplit(url)[:2]:
                headers = {name: value for name, value in headers.items() if name != "Authorization"}
            url = target
        raise RegistryError("The registry redirected too many times.")

    def _check_host(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or parts.netloc.lower() not in self._hosts:
            raise RegistryError(
                "The registry redirected to {netloc}: add this host to the additional hosts if that is right.",
                netloc=parts.netloc[:80] or Message("another place"),
            )
        if self._url.startswith("https:") and parts.scheme != "https":
            raise RegistryError("The registry redirected to an address without encryption.")

    def _request(self, method: str, url: str, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str], bytes]:
        began = time.monotonic()
        try:
            response = self._pool.request(
                method, url, headers=dict(headers), redirect=False, preload_content=False, decode_content=True
            )
            try:
                body = response.read(LARGEST_ANSWER + 1)
            finally:
                response.release_conn()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unreachable(connection_failure_text(url, error, time.monotonic() - began)) from error
        if len(body) > LARGEST_ANSWER:
            response.close()
            raise RegistryError("The registry answered with more than {limit} MiB.", limit=LARGEST_ANSWER // 2**20)
        return response.status, response.headers, body


def _path(repository: str) -> str:
    return quote(repository, safe="/")


def _pull(repository: str) -> str:
    return f"repository:{repository}:pull"


def _texts(values: Any) -> list[str]:
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RegistryError("The registry answered with something that is not JSON.") from error
    if not isinstance(said, dict):
        raise RegistryError("The registry answered with something that is not a JSON object.")
    return said


def _check_digest(body: bytes, name: str) -> None:
    if name.startswith("sha256:") and name != f"sha256:{hashlib.sha256(body).hexdigest()}":
        raise RegistryError("The content does not match its digest.")


def _one_of(manifests: list[Any]) -> tuple[str, str]:
    """Return the digest of one manifest for Linux, and its architecture; nothing of it where there are several."""
    found: dict[str, str] = {}
    for each in manifests:
        platform = each.get("platform") if isinstance(each, dict) else None
        if isinstance(platform, dict) and platform.get("os") == "linux" and is_digest(str(each.get("digest"))):
            found.setdefault(str(platform.get("architecture", "")), str(each["digest"]))
    if not found:
        raise RegistryError("The registry has this image only for systems other than Linux.")
    chosen = next((name for name in ("amd64", "arm64") if name in found), next(iter(found)))
    return found[chosen], chosen if len(found) == 1 else ""


def _size(manifest: Mapping[str, Any]) -> int:
    layers = manifest.get("layers")
    sizes = [layer.get("size") for layer in layers if isinstance(layer, dict)] if isinstance(layers, list) else []
    return min(sum(size for size in sizes if isinstance(size, int) and size > 0), 2**62)


def _words(status: int, path: str) -> str:
    words = _ANSWERS.get(status, Message("Unexpected answer"))
    return Message("{words} (HTTP {status}, {path}).", words=words, status=status, path=path.partition("?")[0][:120])
