"""What the file server has acknowledged is there after a power cut.

The disk is an image that a file system is mounted from. At a power cut the image holds what the disk was given by then:
a copy of it, mounted again, replays its journal as a machine does at its next start.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from tests.files.conftest import Portal, prepare, running, settings_for
from tests.files.test_uploads import KIND, TUS, begin
from tests.patience import until

pytestmark = pytest.mark.asyncio
_SIZE = 64 * 2**20
_NEVER = 300  # seconds until the file system would write its journal by itself
CONTENT = os.urandom(300_000)
Files = dict[str, bytes]


class Machine:
    """A folder on a disk of its own."""

    def __init__(self, portal: Portal, image: Path, aside: Path) -> None:
        self.portal, self._image, self._aside = portal, image, aside

    def files_after_a_power_cut(self) -> Files:
        """Return the files of the folder, as the next start of the machine finds them."""
        copy, place = self._aside / "copy.img", self._aside / "copy"
        shutil.copy(self._image, copy)
        place.mkdir()
        subprocess.run(["mount", "-o", "loop", copy, place], check=True)
        try:
            data = place / self.portal.data.relative_to(self.portal.root.parent)
            return {str(path.relative_to(data)): path.read_bytes() for path in data.rglob("*") if path.is_file()}
        finally:
            subprocess.run(["umount", place], check=True)


@pytest_asyncio.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    """A file server on a disk that writes nothing by itself; skipped where this machine cannot have one."""
    image, place = tmp_path / "disk.img", tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(_SIZE)
    place.mkdir()
    make = ["mkfs.ext4", "-q", "-F", str(image)]
    if os.geteuid() != 0 or shutil.which(make[0]) is None or subprocess.run(make).returncode:
        pytest.skip("this takes root and mkfs.ext4")
    options = f"loop,commit={_NEVER}"
    if subprocess.run(["mount", "-o", options, image, place], capture_output=True).returncode:
        pytest.skip("no file system can be mounted from an image here")
    try:
        root = prepare(place / "host")
        async with running(settings_for(root)) as portal:
            await portal.create()
            (portal.data / "old").mkdir()
            (portal.data / "old" / "there").write_bytes(CONTENT)
            subprocess.run(["sync", "--file-system", place], check=True)
            yield Machine(portal, image, tmp_path)
    finally:  # threads of the server close their files a moment after its end
        until(lambda: subprocess.run(["umount", place], capture_output=True).returncode == 0)


async def put(portal: Portal) -> Files:
    await portal.json("PUT", "/content?path=old/new", 201, data=CONTENT)
    return {"old/there": CONTENT, "old/new": CONTENT}


async def resume(portal: Portal) -> Files:
    upload = await begin(portal, "old/new", len(CONTENT))
    for start, end in ((0, 100_000), (100_000, len(CONTENT))):
        headers = {**TUS, **KIND, "Upload-Offset": str(start)}
        assert (await portal.ask("PATCH", upload, headers=headers, data=CONTENT[start:end])).status == 204
    return {"old/there": CONTENT, "old/new": CONTENT}


async def unpack(portal: Portal) -> Files:
    packed, wanted = io.BytesIO(), {"old/there": CONTENT}
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in ("a", "b/c", "b/d/e", "old/f", *(f"many/{number}" for number in range(600))):
            member = tarfile.TarInfo(name)
            member.size = len(name)
            archive.addfile(member, io.BytesIO(name.encode()))
            wanted[name] = name.encode()
    answer = await portal.json("PUT", "/archive", data=packed.getvalue())
    assert answer["written"] == len(wanted) - 1
    return wanted


async def move(portal: Portal) -> Files:
    await portal.json("POST", "/moves", json={"source": "old/there", "target": "moved"})
    return {"moved": CONTENT}


async def copy(portal: Portal) -> Files:
    await portal.json("POST", "/copies", 201, json={"source": "old", "target": "twice"})
    return {"old/there": CONTENT, "twice/there": CONTENT}


async def delete(portal: Portal) -> Files:
    await portal.json("POST", "/deletions", json={"paths": ["old/there"]})
    return {}


async def restore(portal: Portal) -> Files:
    (item,) = (await portal.json("POST", "/deletions", json={"paths": ["old/there"]}))["items"]
    await portal.json("POST", f"/trash/{item['id']}/restore", json={})
    return {"old/there": CONTENT}


@pytest.mark.parametrize("change", [put, resume, unpack, move, copy, delete, restore])
async def test_an_acknowledged_change_is_there(machine: Machine, change: Callable[[Portal], Awaitable[Files]]) -> None:
    wanted = await change(machine.portal)
    assert machine.files_after_a_power_cut() == wanted
