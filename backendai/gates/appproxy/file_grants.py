"""Exchanges one-time codes for access to a folder's files, and checks the access. Queries the database, so it
blocks.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction

from backendai.base.core.messages import Message
from backendai.base.wire.folder_tickets import sign_folder_ticket
from backendai.domain.accounts.models import User
from backendai.domain.accounts.services import token_of
from backendai.domain.accounts.sign_in.credentials import Credential, user_by
from backendai.domain.activity.services import audit
from backendai.domain.cluster.app_domains import is_portal_origin
from backendai.domain.storage.file_origins import FileClaims, FileCodeRefused, file_host, folders_at, read_file_code
from backendai.domain.storage.models import Folder
from backendai.domain.storage.querysets import MANAGE, FolderQuerySet
from backendai.domain.storage.status import FolderStatus, Rights
from backendai.gates.appproxy.grants import LIFETIME, digest_of
from backendai.gates.appproxy.models import FilesGrant
from backendai.gates.appproxy.programs import BEARER
from backendai.gates.gateways.targets import Denied

_CHANGES = frozenset({MANAGE, str(Rights.EDIT)})
_SCOPE = "folders"  # which an access token needs to change files


@dataclass(frozen=True, slots=True)
class FolderTarget:
    """A folder on a file server, with the visitor's rights and credential.

    ``portal``: the host of the portal whose pages may use it; empty for an access token, which pages cannot use.
    """

    folder_id: UUID
    storage_host: str
    address: str
    version: int
    rights: Literal["view", "edit"]
    credential: Credential
    account: str
    visitor: str
    portal: str = ""
    recheck_seconds: float = 2.0  # rights that are taken away end what is under way within 5 s

    def is_over(self, now: datetime) -> bool:
        """Return False: access to files has no end of its own."""
        return False

    def ticket(self, now: datetime) -> dict[str, str]:
        """Return the header with which the file server grants access to this folder. Browsers never see it."""
        ticket = sign_folder_ticket(
            settings.TICKET_KEY,
            host=self.storage_host,
            folder_id=self.folder_id,
            version=self.version,
            rights=self.rights,
            now=now.timestamp(),
            account=self.account,
        )
        return {"Authorization": f"Bearer {ticket}"}


def redeem_file_code(code: str, host: str, now: datetime, *, origin: str = "") -> str:
    """Exchange a one-time code of this host for the secret that opens its files. Saves only the secret's digest.
    Raises Denied.
    """
    try:
        claims = read_file_code(code, now)
    except FileCodeRefused:
        raise Denied("code-refused", Message("This link has expired. Open the folder in the portal again.")) from None
    if file_host(claims.folder_id) != host:
        raise Denied("code-refused", Message("This link belongs to a different folder."))
    if origin and not is_portal_origin(origin, claims.portal):
        raise Denied(
            "foreign-origin", Message("Open the folder in the portal: a page of another origin may not sign you in.")
        )
    user, folder = _entitled(claims.user_id, claims.credential, Folder.objects.filter(pk=claims.folder_id), now)
    text = secrets.token_urlsafe(32)
    try:
        with transaction.atomic():
            _write(claims, host, text, now)
            audit(user.pk, "folder.open", "folder", [folder.pk], name=folder.name)
    except IntegrityError:
        raise Denied(
            "code-used", Message("This link has already been used. Open the folder in the portal again.")
        ) from None
    FilesGrant.objects.filter(expires_at__lt=now).delete()
    return text


def open_files_by(texts: Sequence[str], host: str, now: datetime) -> FolderTarget:
    """Return the folder that one of the secrets opens on this host, after checking the person's rights again. After
    ``BEARER`` comes the secret of a header, which may be an access token. Raises Denied.
    """
    digests = [digest_of(text) for text in texts if text != BEARER]
    lasting = FilesGrant.objects.filter(host=host, expires_at__gt=now)
    grant: FilesGrant | None = lasting.filter(digest__in=digests).first()
    if grant is not None:
        credential = Credential(login=grant.login, token=grant.token, key_pair=grant.key_pair)
        user, folder = _entitled(grant.user_id, credential, Folder.objects.filter(pk=grant.folder_id), now)
        return _target(user, folder, credential, grant.pk.hex, portal=grant.portal)
    token = token_of(texts[1]) if texts[:1] == (BEARER,) else None
    if token is None:
        raise Denied("not-entered", Message("These files are private. Open the folder in the portal."))
    credential = Credential(token=token.digest)
    user, folder = _entitled(token.user_id, credential, folders_at(host) or Folder.objects.none(), now)
    return _target(user, folder, credential, token.digest[:32], may_change=_SCOPE in token.scopes)


def may_ask(origin: str, host: str, now: datetime) -> bool:
    """Return whether pages of this origin may request files of this host: the portal's pages, once a person has opened
    the folder there.
    """
    if is_portal_origin(origin, ""):
        return True
    portals = FilesGrant.objects.filter(host=host, expires_at__gt=now, portal=origin.partition("://")[2].lower())
    return is_portal_origin(origin, portals.values_list("portal", flat=True).first() or "")


def _entitled(user_id: UUID, credential: Credential, rows: FolderQuerySet, now: datetime) -> tuple[User, Folder]:
    user = user_by(credential, now)
    if user is None or user.pk != user_id:
        raise Denied("signed-out", Message("You are signed out of the portal. Sign in and open the folder again."))
    visible = Folder.objects.visible_to(user).filter(pk__in=rows.values("pk"))
    folder: Folder | None = visible.select_related("host").first()
    if folder is None:
        raise Denied("not-entered", Message("You may not open this folder."))
    if folder.status != FolderStatus.READY:
        raise Denied(
            "folder-not-ready",
            Message("The folder {folder} is {status}.", folder=folder.name, status=folder.get_status_display()),
        )
    return user, folder


def _target(
    user: User, folder: Folder, credential: Credential, visitor: str, *, portal: str = "", may_change: bool = True
) -> FolderTarget:
    changes = may_change and folder.rights in _CHANGES and not folder.linked_path  # type: ignore[attr-defined]
    return FolderTarget(
        folder.pk,
        folder.host.name,
        folder.host.address,
        folder.version,
        "edit" if changes else "view",
        credential,
        user.email,
        visitor,
        portal,
    )


def _write(claims: FileClaims, host: str, text: str, now: datetime) -> None:
    FilesGrant.objects.create(
        entry=claims.entry_id,
        digest=digest_of(text),
        user_id=claims.user_id,
        folder_id=claims.folder_id,
        host=host,
        portal=claims.portal,
        login=claims.credential.login,
        token=claims.credential.token,
        key_pair=claims.credential.key_pair,
        created_at=now,
        expires_at=now + LIFETIME,
    )
