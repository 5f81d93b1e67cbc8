"""Writes folders into the database of a platform; runs inside its ``manage.py shell``."""

from __future__ import annotations

from backendai.domain.accounts.models import User
from backendai.domain.storage.models import Folder
from tests.browser.people import ALICE
from tests.mount_tools import ready_folder, storage_host


def make_folders() -> None:
    """Give Alice two folders on a host that no agent mounts, and one that mounts by itself."""
    host, alice = storage_host("nas"), User.objects.get(email=ALICE)
    for name in ("data", "models", ".cache"):
        ready_folder(alice, name, host=host)
    print("made")  # noqa: T201


def remove_folders() -> None:
    """Remove them with the sessions that name them."""
    Folder.objects.all().delete()
    print("removed")  # noqa: T201
