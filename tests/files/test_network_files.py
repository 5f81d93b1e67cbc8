"""What network file systems do: handles that went stale, and deleted files that stay while a program has them open."""

from __future__ import annotations

import asyncio
import errno
import os
import uuid
from collections import Counter
from typing import Any

import pytest

from backendai.base.paths.storage_layout import folder_path
from backendai.files.entries import changes
from tests.files.conftest import Portal

pytestmark = pytest.mark.asyncio
LEFTOVER = ".nfs00000000012345670000002a"


class Busy:
    """Files in use: they cannot be deleted until they are closed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.unlink, self.is_open = os.unlink, True
        monkeypatch.setattr(os, "unlink", self)

    def __call__(self, name: Any, **told: Any) -> None:
        if self.is_open and os.fsdecode(name).startswith(".nfs"):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        self.unlink(name, **told)


async def until(portal: Portal, folder: uuid.UUID, state: str, error: str | None) -> None:
    while True:
        told = await portal.json("GET", "", rights="manage", folder_id=folder)
        if told["state"] == state and (error is None or error in (told["error"] or "")):
            return
        await asyncio.sleep(0.01)


async def test_a_folder_with_files_in_use_is_gone_and_its_rest_goes_when_they_are_closed(
    portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = Busy(monkeypatch)
    (portal.data / "d").mkdir()
    for name in (f"d/{LEFTOVER}", "d/f", "g"):
        (portal.data / name).write_text(name)
    await portal.json("DELETE", "", 202, rights="manage")
    assert not folder_path(portal.root, portal.folder_id).exists()
    await until(portal, portal.folder_id, "deleting", f"still use files here, such as {LEFTOVER}")
    left = [name for _, _, names in os.walk(portal.root / ".deleting") for name in names]
    assert left == [LEFTOVER]
    busy.is_open = False
    await portal.json("DELETE", "", 202, rights="manage")  # the portal asks until it is gone
    await until(portal, portal.folder_id, "absent", None)
    assert os.listdir(portal.root / ".deleting") == []


async def test_a_clone_leaves_deleted_files_out_and_tries_stale_ones_again(
    portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    (portal.data / "d").mkdir()
    for name in ("d/lost", "d/again", f"d/{LEFTOVER}", LEFTOVER):
        (portal.data / name).write_text(name)
    real, tries, stale = changes.copy_file, Counter[bytes](), {b"again": 2, b"lost": 99}

    def copy_file(old: int, name: bytes, *told: Any) -> None:
        tries[name] += 1
        if tries[name] <= stale[name]:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        real(old, name, *told)

    monkeypatch.setattr(changes, "copy_file", copy_file)
    target, order = uuid.uuid4(), {"source": str(portal.folder_id)}
    await portal.json("POST", "/clones", 202, rights="manage", folder_id=target, json=order)
    await until(portal, target, "absent", "d/lost: The storage has changed meanwhile")
    stale[b"lost"] = 0
    await portal.json("POST", "/clones", 202, rights="manage", folder_id=target, json=order)
    await until(portal, target, "ready", None)
    data = folder_path(portal.root, target) / "data"
    assert sorted(path.name for path in data.rglob("*")) == ["again", "d", "lost"]
