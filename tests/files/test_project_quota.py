"""Limits that the file system enforces: on a real one with project quotas, and what the server does about them."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backendai.base.paths import beneath
from backendai.files.entries.tree import opened_base, read_meta
from backendai.files.folders import cloning, lifecycle, measuring
from backendai.files.folders.progress import Progress
from backendai.files.hosts import acting_as
from backendai.files.limits import project_quota
from tests.files.conftest import Portal, prepare

MIB, USER = 2**20, 1000


_MAKE = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-O", "quota,project", "-E", "quotatype=prjquota"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
}


@pytest.fixture(params=sorted(_MAKE))
def enforcing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    """The root of a storage host on a file system with project quotas; skipped where this machine cannot have one."""
    image, place, make = tmp_path / "disk.img", tmp_path / "disk", _MAKE[request.param]
    with image.open("wb") as file:
        file.truncate(512 * MIB)
    place.mkdir()
    if os.geteuid() != 0 or shutil.which(make[0]) is None or subprocess.run([*make, image]).returncode:
        pytest.skip(f"this takes root and {make[0]} with project quotas")
    if subprocess.run(["mount", "-o", "loop,prjquota", image, place], capture_output=True).returncode:
        pytest.skip(f"this kernel has no project quotas for {request.param}")
    root = os.open(prepare(place / "host", uid=USER), os.O_RDONLY)
    os.fchown(root, USER, USER)
    try:
        with acting_as(USER):
            yield root
    finally:
        os.close(root)
        subprocess.run(["umount", place], check=True)


def fill(root: int, folder_id: uuid.UUID, name: str, size: int) -> bool:
    """Write a file as a program of a session does, without the rights of root; returns whether there was room."""
    data = beneath.open_directory(root, (*lifecycle.parts_of(folder_id), b"data"), follow=False)
    command = ["dd", "if=/dev/zero", f"of={name}", "bs=1M", f"count={size // MIB}", "conv=fsync"]
    try:
        place = f"/proc/self/fd/{data}"
        done = subprocess.run(command, user=USER, group=USER, extra_groups=[], capture_output=True, cwd=place)
    finally:
        os.close(data)
    assert done.returncode == 0 or b"quota exceeded" in done.stderr or b"No space" in done.stderr, done.stderr
    return done.returncode == 0


def test_a_program_cannot_write_beyond_the_limit(enforcing: int) -> None:
    one, other = uuid.uuid4(), uuid.uuid4()
    assert project_quota.is_offered(enforcing)
    for folder in (one, other):
        lifecycle.create(enforcing, folder, 1, {"limit": 8 * MIB})
    assert not fill(enforcing, one, "a", 20 * MIB)
    assert fill(enforcing, other, "a", 6 * MIB)  # a limit of its own
    lifecycle.change_meta(enforcing, one, 2, {"limit": 30 * MIB})
    assert fill(enforcing, one, "a", 20 * MIB)
    lifecycle.change_meta(enforcing, other, 2, {"limit": None})
    assert fill(enforcing, other, "b", 40 * MIB)
    with opened_base(enforcing, other) as base:
        assert project_quota.used(base, read_meta(base).project) >= 46 * MIB


def test_files_from_before_the_limit_join_with_the_measurement(enforcing: int) -> None:
    folder = uuid.uuid4()
    lifecycle.create(enforcing, folder, 1, {})
    assert fill(enforcing, folder, "old", 6 * MIB)
    lifecycle.change_meta(enforcing, folder, 2, {"limit": 10 * MIB})
    measuring.measure(enforcing, folder, 1.0, Progress())
    assert not fill(enforcing, folder, "new", 6 * MIB)
    with opened_base(enforcing, folder) as base:
        assert project_quota.join_all(base, read_meta(base).project) == 0


def test_a_clone_has_a_limit_of_its_own(enforcing: int) -> None:
    source, clone = uuid.uuid4(), uuid.uuid4()
    lifecycle.create(enforcing, source, 1, {"limit": 20 * MIB})
    assert fill(enforcing, source, "a", 6 * MIB)
    cloning.order(enforcing, clone, 1, source, (), {"limit": 10 * MIB})
    cloning.fill(enforcing, clone, (), Progress())
    assert not fill(enforcing, clone, "b", 6 * MIB)
    assert fill(enforcing, source, "b", 6 * MIB)


async def host(portal: Portal) -> Any:
    headers = {"Authorization": f"Bearer {portal.ticket('manage', folder_id=uuid.UUID(int=0))}"}
    return await (await portal.client.get("/v1/host", headers=headers)).json()


@pytest.mark.asyncio
async def test_without_project_quotas_the_host_says_that_it_measures(portal: Portal) -> None:
    assert (await host(portal))["quota_mode"] == "measured"


@pytest.mark.asyncio
async def test_what_a_folder_with_a_limit_is_made_of_joins_its_project(
    portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: dict[int, tuple[int | None, int | None]] = {}
    joined: list[int] = []
    monkeypatch.setattr(project_quota, "is_offered", lambda directory: True)
    monkeypatch.setattr(project_quota, "free_number", lambda directory, folder_id: 2**20 + len(limits))
    monkeypatch.setattr(
        project_quota, "set_limit", lambda _, number, limit, most: limits.update({number: (limit, most)})
    )
    monkeypatch.setattr(project_quota, "join_skeleton", lambda base, number: joined.append(number))
    monkeypatch.setattr(project_quota, "join_all", lambda base, number: joined.append(number) or 0)
    assert (await host(portal))["quota_mode"] == "enforced"
    await portal.json("PUT", "/limit", rights="manage", json={"bytes": 4096})
    assert limits == {2**20: (4096, 1000)} and joined[0] == 2**20
    await portal.json("PUT", "/limit", rights="manage", json={"bytes": None})
    assert limits == {2**20: (None, None)}  # the number stays, the limit goes
