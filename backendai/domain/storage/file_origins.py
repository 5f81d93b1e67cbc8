"""Builds the web origin of a folder's files, and the one-time codes that open them.

Files never share the portal's origin, as an uploaded page may contain scripts. A code is encrypted with the portal's
secret and valid for half a minute; the app proxy accepts it once.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import uuid
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings

from backendai.domain.accounts.models import User
from backendai.domain.accounts.sign_in.credentials import Credential
from backendai.domain.cluster.app_domains import origin_of, program_url
from backendai.domain.storage.models import Folder
from backendai.domain.storage.querysets import FolderQuerySet

CODE_SECONDS = 30
ENTER_PATH = "/.backendai/enter"
_LABEL = re.compile(r"files-([0-9a-f]{12})\Z")


@dataclass(frozen=True, slots=True)
class FileEntry:
    """The address to which a page sends the code (``POST``, field ``code``): once, within ``CODE_SECONDS``."""

    url: str
    code: str


@dataclass(frozen=True, slots=True)
class FileClaims:
    """The contents of a code. ``portal``: the host (with port) of the portal whose pages may send it."""

    entry_id: UUID
    user_id: UUID
    folder_id: UUID
    credential: Credential
    portal: str


class FileCodeRefused(Exception):
    """The code is forged, expired or meant for another purpose."""


def file_host(folder_id: UUID) -> str:
    """Return the host name at which browsers reach the files of a folder."""
    return f"files-{folder_id.hex[:12]}.{settings.APPS_DOMAIN}"


def file_origin(folder_id: UUID) -> str:
    """Return the origin under which browsers reach the files of a folder."""
    return origin_of(file_host(folder_id))


def files_url(folder_id: UUID) -> str:
    """Return the address under which programs reach the files of a folder."""
    return program_url(file_host(folder_id), f"/folders/{folder_id}")


def folders_at(host: str) -> FolderQuerySet | None:
    """Return the folder of a host name as a queryset; None if the host name is not one of a folder."""
    label, _, domain = host.partition(".")
    found = _LABEL.fullmatch(label)
    if found is None or domain != settings.APPS_DOMAIN:
        return None
    digits = found[1]
    least, most = UUID(hex=digits.ljust(32, "0")), UUID(hex=digits.ljust(32, "f"))
    rows: FolderQuerySet = Folder.objects.filter(pk__range=(least, most))
    return rows


def make_file_entry(user: User, folder: Folder, credential: Credential, now: datetime, *, portal: str) -> FileEntry:
    """Return the address and a new code for the files of a folder that the user may see."""
    said = {"id": str(uuid.uuid4()), "user": str(user.pk), "folder": str(folder.pk), "portal": portal.lower()}
    said |= {"login": credential.login, "token": credential.token, "key_pair": credential.key_pair}
    code = _sealer().encrypt_at_time(json.dumps(said).encode(), current_time=int(now.timestamp())).decode()
    return FileEntry(f"{file_origin(folder.pk)}{ENTER_PATH}", code)


def read_file_code(code: str, now: datetime) -> FileClaims:
    """Return the contents of a code. Raises FileCodeRefused."""
    try:
        said = json.loads(_sealer().decrypt_at_time(code.encode(), ttl=CODE_SECONDS, current_time=int(now.timestamp())))
    except (InvalidToken, ValueError) as error:
        raise FileCodeRefused from error
    return FileClaims(
        entry_id=UUID(said["id"]),
        user_id=UUID(said["user"]),
        folder_id=UUID(said["folder"]),
        credential=Credential(login=said["login"], token=said["token"], key_pair=said["key_pair"]),
        portal=said["portal"],
    )


def _sealer() -> Fernet:
    key = hashlib.sha256(b"file entry\0" + settings.SECRET_KEY.encode()).digest()
    return Fernet(base64.urlsafe_b64encode(key))
