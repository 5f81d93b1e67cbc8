"""The home folder of a kernel over the gateway: whole or recognisably not, and for its own ticket only."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import aiohttp
import pytest

from backendai.base.paths import packing
from backendai.base.paths.tree_walk import select
from backendai.files.hosts import acting_as
from tests.agent.prerequisites import need_root
from tests.agent.test_gateway import setting


@pytest.mark.asyncio
async def test_it_sends_the_home_folder_as_a_tar(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the machine")
    home = tmp_path / "home"
    (home / "sub").mkdir(parents=True)
    (home / "sub/a").write_bytes(b"a" * 3_000_000)
    Path(os.fsdecode(os.fsencode(home) + b"/caf\xe9")).write_text("x")
    (home / "link").symlink_to("../secret")
    os.mkfifo(home / "pipe")
    async with setting() as here:
        here.backend.home_folders[here.kernel_id] = home
        address = f"/kernels/{here.kernel_id}/files"
        async with here.client.get(address, headers=here.ticket(purpose="files")) as answer:
            assert answer.status == 200
            with tarfile.open(fileobj=io.BytesIO(await answer.read())) as archive:
                names = {os.fsencode(one.name): one for one in archive.getmembers()}
        assert names.keys() == {b"sub", b"sub/a", b"caf\xe9", b"link", b"pipe"}
        assert names[b"link"].issym() and names[b"pipe"].isfifo() and names[b"sub/a"].size == 3_000_000
        for purpose in ("home", "app", "terminal"):
            async with here.client.get(address, headers=here.ticket(purpose=purpose)) as answer:
                assert answer.status == 403


@pytest.mark.asyncio
async def test_a_home_that_is_not_there_is_said(tmp_path: Path) -> None:
    async with setting() as here:
        address, ticket = f"/kernels/{here.kernel_id}/files", here.ticket(purpose="files")
        async with here.client.get(address, headers=ticket) as answer:
            assert answer.status == 404 and "cannot be read" in await answer.text()
        here.backend.home_folders[here.kernel_id] = tmp_path / "gone"
        async with here.client.get(address, headers=ticket) as answer:
            assert answer.status == 404 and "No such file" in await answer.text()
        here.backend.home_folders[here.kernel_id] = link = tmp_path / "link"
        link.symlink_to("/")
        async with here.client.get(address, headers=ticket) as answer:
            assert answer.status == 404


@pytest.mark.asyncio
async def test_an_archive_that_breaks_off_does_not_end_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"a" * 3_000_000)
    (tmp_path / "b").write_bytes(b"b")
    monkeypatch.setattr("backendai.base.paths.packing.read_content", _broken)
    async with setting() as here:
        here.backend.home_folders[here.kernel_id] = tmp_path
        with pytest.raises(aiohttp.ClientError):
            async with here.client.get(
                f"/kernels/{here.kernel_id}/files", headers=here.ticket(purpose="files")
            ) as answer:
                assert answer.status == 200
                await answer.read()


def _broken(descriptor: int, size: int) -> object:
    yield b"x" * 2_000_000
    raise PermissionError(13, "Permission denied")


def test_what_may_not_be_read_is_named_and_not_left_out_silently(tmp_path: Path) -> None:
    need_root("only root can be somebody else")
    for name in ("open", "closed", "shut/inside"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    tmp_path.chmod(0o755)
    (tmp_path / "closed").chmod(0)
    (tmp_path / "shut").chmod(0)
    directory = os.open(tmp_path, os.O_RDONLY)
    with acting_as(1000):
        archive = b"".join(packing.pack(select(directory, [()]), packing.Tar(pipes=True)))
    with tarfile.open(fileobj=io.BytesIO(archive)) as found:
        kinds = {one.name: one.type for one in found}
    assert kinds == {"open": tarfile.REGTYPE, "closed": tarfile.FIFOTYPE, "shut": tarfile.FIFOTYPE}
