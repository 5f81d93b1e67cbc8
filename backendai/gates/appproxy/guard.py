"""Checks which app or folder the cookies or the header of a request open at a host."""

from __future__ import annotations

import re
from datetime import datetime

from django.conf import settings
from django.utils import timezone

from backendai.domain.cluster.app_domains import holds, is_domain, portal_names
from backendai.domain.compute.services.apps.settings import arguments_for
from backendai.domain.storage.file_origins import folders_at
from backendai.gates.appproxy.file_grants import FolderTarget, may_ask, open_files_by, redeem_file_code
from backendai.gates.appproxy.grants import open_by, redeem
from backendai.gates.gateways.guard import Guard
from backendai.gates.gateways.targets import Target

AnyTarget = Target | FolderTarget
Key = tuple[tuple[str, ...], str]  # the texts of cookies or of a header, and the host


class AppGuard(Guard[Key, AnyTarget]):
    """Checks and watches all access through the app proxy."""

    def __init__(self) -> None:
        super().__init__(open_at)

    async def enter(self, code: str, host: str, origin: str) -> str:
        """Exchange a code for the value of a cookie. Raises Denied, or Unknown if the database does not answer."""
        return await self.ask(lambda: redeem_at(code, host, timezone.now(), origin=origin))

    async def arguments(self, target: Target) -> tuple[str, ...]:
        """Return the arguments for the command of the target's service. Raises Unknown."""
        return await self.ask(lambda: arguments_for(target.session_id, target.service))

    async def may_ask(self, origin: str, host: str) -> bool:
        """Return whether pages of this origin may request the files of this host. Raises Unknown."""
        return await self.ask(lambda: may_ask(origin, host, timezone.now()))


def redeem_at(code: str, host: str, now: datetime, *, origin: str = "") -> str:
    """Exchange a code for the secret that opens the app or folder of this host. Raises Denied."""
    exchange = redeem_file_code if _has_files(host) else redeem
    return exchange(code, host, now, origin=origin)


def open_at(key: Key, now: datetime) -> AnyTarget:
    """Return the app or folder that the cookies, or the header's secret, open at this host now. Raises Denied."""
    texts, host = key
    return open_files_by(texts, host, now) if _has_files(host) else open_by(texts, host, now)


def _has_files(host: str) -> bool:
    # An app may be called "files" too: then its digits are those of a session.
    folders = folders_at(host)
    return folders is not None and folders.exists()


_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
_WITH_ID = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?-[0-9a-f]{12}\Z")


def app_host(header: str) -> str | None:
    """Return the host name without its port if it can belong to an app, else None.

    Under the site's domain any name can. Under the domains of resource groups it must end with an id; codes and
    cookies, each for one whole name, then decide.
    """
    name = header.rpartition(":")[0] if re.search(r":\d+\Z", header) else header
    label, dot, domain = name.lower().rstrip(".").partition(".")
    if not dot or not _LABEL.match(label):
        return None
    if domain == settings.APPS_DOMAIN:
        return f"{label}.{domain}"
    is_foreign = is_domain(domain) and not any(holds(domain, name) for name in portal_names())
    return f"{label}.{domain}" if is_foreign and has_id(label) else None


def has_id(label: str) -> bool:
    """Return whether the first label of a host name ends with the id of a session or an endpoint."""
    return bool(_WITH_ID.match(label))
