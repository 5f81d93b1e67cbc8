"""Many files at once: tar streams in, zip and tar out, and archives that mean harm."""

from __future__ import annotations

import errno
import io
import os
import stat
import tarfile
import uuid
import zipfile
from typing import Any

import pytest

from backendai.base.paths import beneath, packing
from backendai.files.entries import tar_reading
from backendai.files.http import archives as archive_views
from tests.files.conftest import Portal

pytestmark = pytest.mark.asyncio


def tar_of(*members: tuple[str, bytes | None] | tarfile.TarInfo, format: int = tarfile.PAX_FORMAT) -> bytes:
    """An archive of files (name, content), directories (name, None) and whatever else."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
                continue
            info = tarfile.TarInfo(member[0])
            info.mtime = 1_700_000_000
            if member[1] is None:
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(info)
            else:
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    return out.getvalue()


def special(name: str, kind: bytes, **more: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    for key, value in more.items():
        setattr(info, key, value)
    return info


async def put(portal: Portal, archive: bytes, status: int = 200, overwrite: str = "skip-equal") -> Any:
    return await portal.json("PUT", f"/archive?overwrite={overwrite}", status, data=archive)


LONG = "d" * 120 + "/" + "e" * 200


@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
async def test_an_archive_is_unpacked(portal: Portal, each_way: str, format: int) -> None:
    long = LONG if format != tarfile.USTAR_FORMAT else "d" * 90 + "/" + "e" * 90
    large = os.urandom(3 * 2**20 + 5)
    archive = tar_of(("./a", b"A"), ("dir/", None), ("dir/sub/b", b""), (long, b"L"), ("large", large), format=format)
    answer = await put(portal, archive)
    assert (answer["written"], answer["skipped"], answer["refused"]) == (5, 0, [])
    assert (portal.data / "a").read_bytes() == b"A"
    assert (portal.data / "a").stat().st_mtime == 1_700_000_000
    assert (portal.data / "dir/sub/b").read_bytes() == b""
    assert (portal.data / long).read_bytes() == b"L"
    assert (portal.data / "large").read_bytes() == large
    assert os.listdir(portal.incoming) == []


async def test_names_outside_utf8_and_ascii_survive(portal: Portal) -> None:
    names = ["caf\udce9", "日本", "a\nb"]
    await put(portal, tar_of(*((name, b"x") for name in names), format=tarfile.GNU_FORMAT))
    assert sorted(os.listdir(portal.data)) == sorted(names)


async def test_sent_again_only_what_differs_is_written(portal: Portal) -> None:
    await put(portal, tar_of(("a", b"A"), ("b", b"B")))
    (portal.data / "b").write_bytes(b"changed")
    answer = await put(portal, tar_of(("a", b"A"), ("b", b"B"), ("c", b"C")))
    assert (answer["written"], answer["skipped"], answer["equal"]) == (2, 1, 1)
    assert (portal.data / "b").read_bytes() == b"B"
    (portal.data / "b").write_bytes(b"mine")
    answer = await put(portal, tar_of(("a", b"1"), ("b", b"2")), overwrite="never")
    assert (answer["written"], answer["skipped"], answer["equal"]) == (0, 2, 1)
    assert (portal.data / "b").read_bytes() == b"mine"
    assert (await put(portal, tar_of(("a", b"A")), overwrite="all"))["written"] == 1
    await put(portal, tar_of(("a", b"A")), 422, overwrite="maybe")


async def test_each_directory_is_opened_twice_in_whichever_order_its_files_come(
    portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[beneath.Parts] = []
    real = beneath.make_directories
    count = lambda top, parts, *mode, **more: (opened.append(parts), real(top, parts, *mode, **more))[1]  # noqa: E731
    monkeypatch.setattr(beneath, "make_directories", count)
    names = [f"d{number % 80}/{number}" for number in range(240)]
    assert (await put(portal, tar_of(*((name, b"x") for name in names))))["written"] == 240
    assert len([parts for parts in opened if parts and parts[0].startswith(b"d")]) == 160
    assert sum(len(files) for _, _, files in os.walk(portal.data)) == 240


async def test_links_inside_are_made_and_others_refused(portal: Portal, each_way: str) -> None:
    targets = {
        "in": "d/x",
        "d/up": "../d/x",
        "out": "../x",
        "d/deep": "../../x",
        "abs": "/etc/passwd",
        "e": "a/../../x",
    }
    archive = tar_of(*(special(name, tarfile.SYMTYPE, linkname=target) for name, target in targets.items()))
    answer = await put(portal, archive)
    assert os.readlink(portal.data / "in") == "d/x" and os.readlink(portal.data / "d/up") == "../d/x"
    assert {one["path"]: one["code"] for one in answer["refused"]} == dict.fromkeys(
        ("out", "d/deep", "abs", "e"), "link-refused"
    )
    assert answer["written"] == 2


async def test_hostile_members_are_refused_and_the_others_written(portal: Portal, each_way: str) -> None:
    outside = portal.root / "outside"
    (portal.data / "link").symlink_to("../../../..")
    (portal.data / "inner").mkdir()
    (portal.data / "plain").write_text("x")
    (portal.data / "way").symlink_to("inner")
    members: list[Any] = [
        ("/etc/owned", b"x"),
        ("../outside", b"x"),
        ("a/../../outside", b"x"),
        ("link/outside", b"x"),
        ("way/file", b"x"),
        ("n" * 256, b"x"),
        special("hard", tarfile.LNKTYPE, linkname="/etc/passwd"),
        special("fifo", tarfile.FIFOTYPE),
        special("device", tarfile.CHRTYPE, devmajor=1, devminor=3),
        special("block", tarfile.BLKTYPE),
        ("inner", b"a file in place of a directory"),
        ("good", b"good"),
        ("plain/below-a-file", b"x"),
        ("", b"x"),
        (".", None),
    ]
    answer = await put(portal, tar_of(*members))
    assert answer["written"] == 2  # also what is below a link inside the folder
    assert len(answer["refused"]) == 11
    assert (portal.data / "good").read_bytes() == b"good"
    assert not outside.exists() and os.listdir(portal.data / "inner") == ["file"]
    assert sorted(os.listdir(portal.data)) == ["good", "inner", "link", "plain", "way"]
    assert os.listdir(portal.incoming) == []


async def test_modes_of_an_archive_give_nobody_more_rights(portal: Portal) -> None:
    info = special("run", tarfile.REGTYPE, mode=0o6777)
    await put(portal, tar_of(info, special("locked", tarfile.REGTYPE, mode=0)))
    assert stat.S_IMODE((portal.data / "run").stat().st_mode) == 0o755
    assert stat.S_IMODE((portal.data / "locked").stat().st_mode) == 0o600


def extended(*records: bytes, kind: bytes = tarfile.XHDTYPE) -> bytes:
    """One extended header with these records, each with its own length."""
    content = b"".join(b"%d %s\n" % (length, record) for record in records for length in [_whole_length(record)])
    return special("x", kind, size=len(content)).tobuf() + content + bytes(-len(content) % 512)


def _whole_length(record: bytes) -> int:
    digits = next(digits for digits in range(1, 9) if len(str(len(record) + 2 + digits)) == digits)
    return len(record) + 2 + digits


def _broken(edit: Any) -> bytes:
    data = bytearray(tar_of(("f", b"x")))
    edit(data)
    return bytes(data)


def _with_size(text: bytes) -> bytes:
    header = bytearray(tarfile.TarInfo("f").tobuf(tarfile.USTAR_FORMAT))
    header[124:136] = text.ljust(12, b"\0")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + bytes(1024)


@pytest.mark.parametrize(
    ("archive", "status"),
    [
        (b"", 400),
        (b"x" * 100, 400),
        (b"x" * 512, 422),
        (tar_of(("f", b"x" * 5000))[:2000], 400),
        (tar_of(("f", b"x"))[:1024], 400),
        (_broken(lambda data: data.__setitem__(0, 7)), 422),
        (_with_size(b"\x80" + b"\x7f" + b"\xff" * 10), 422),
        (_with_size(b"\xff" * 12), 422),
        (_with_size(b"77777777777"), 400),
        (special("x", tarfile.GNUTYPE_LONGNAME, size=2**20).tobuf() + bytes(2**20), 422),
        (special("x", tarfile.XHDTYPE, size=512).tobuf() + b"99999999999 path=x\n".ljust(512, b"\0"), 422),
        (special("x", tarfile.XHDTYPE, size=512).tobuf() + b"nonsense".ljust(512, b"\0"), 422),
        (extended(b"size=nan") + tar_of(("f", b"")), 422),
        (extended(b"size=1.5") + tar_of(("f", b"")), 422),
        (special("x", tarfile.XHDTYPE, size=512).tobuf() + b"12 size=-1\n".ljust(512, b"\0") + tar_of(("f", b"")), 422),
        (special("x", tarfile.GNUTYPE_SPARSE).tobuf(tarfile.GNU_FORMAT) + bytes(1024), 422),
        (b"\x1f\x8b\x08\0" + bytes(600), 422),
    ],
)
async def test_what_is_no_archive_is_refused_and_leaves_nothing(portal: Portal, archive: bytes, status: int) -> None:
    await put(portal, archive, status)
    assert [name for name in os.listdir(portal.data) if name != "f"] == []
    assert os.listdir(portal.incoming) == []


@pytest.mark.parametrize(
    "header",
    [
        extended(*(b"k%d=" % number + b"v" * 300 for number in range(200))),
        extended(b"comment=" + b"x" * 60_000, kind=tarfile.XGLTYPE),
        special("x", tarfile.GNUTYPE_LONGNAME, size=60_000).tobuf() + bytes(60_000 + -60_000 % 512),
        extended(b"a=b"),
    ],
    ids=["many records", "global", "long name", "small"],
)
async def test_headers_without_a_member_are_refused_by_their_amount(
    portal: Portal, monkeypatch: pytest.MonkeyPatch, header: bytes
) -> None:
    taken: list[int] = []
    real = tar_reading.TarReader._exactly

    async def count(self: tar_reading.TarReader, size: int) -> bytes:
        taken.append(size)
        return await real(self, size)

    monkeypatch.setattr(tar_reading.TarReader, "_exactly", count)
    refusal = await put(portal, header * (30 * 2**20 // len(header)), 422)
    assert (refusal["code"], refusal["limit"]) == ("bad-archive", 64 * 1024)
    assert sum(taken) < 140_000


async def test_of_extended_headers_only_what_is_used_is_kept() -> None:
    header = extended(*(b"k%d=v" % number for number in range(200)), b"path=p", b"mtime=1.5", b"GNU.sparse.major=1")
    assert tar_reading._records(header[512:]) == {"path": b"p", "mtime": b"1.5", "GNU.sparse": b"1"}


async def test_a_header_of_very_many_records_is_refused(portal: Portal) -> None:
    header = extended(*(b"k%d=v" % number for number in range(tar_reading.MOST_RECORDS + 1)))
    assert (await put(portal, header + tar_of(("f", b"x")), 422))["code"] == "bad-archive"
    assert os.listdir(portal.data) == []


async def test_sixteen_extended_headers_of_a_member_are_taken(portal: Portal) -> None:
    headers = extended(b"path=" + b"a" * 200) * 16
    assert (await put(portal, headers + tar_of(("f", b"x"))))["written"] == 1
    assert os.listdir(portal.data) == ["a" * 200]


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        (b"nan", None),
        (b"soon", None),
        (b"", None),
        (b"inf", None),
        (b"-1e400", None),
        (b"9" * 5000, None),
        (b"1e300", 2**40),
        (b"-100.5", -101),
        (b"-1e12", -(2**31)),
    ],
)
async def test_an_odd_time_spoils_neither_the_archive_nor_the_server(
    portal: Portal, text: bytes, taken: int | None
) -> None:
    archive = tar_of(("before", b"x"))[:1024] + extended(b"mtime=" + text) + tar_of(("odd", b"x"), ("after", b"x"))
    answer = await put(portal, archive)
    names = {path.name for path in portal.data.iterdir()}
    if taken is None:
        assert answer["refused"] == [{"path": "odd", "code": "bad-time"}]
        assert names == {"before", "after"}
    else:
        assert (answer["refused"], names) == ([], {"before", "odd", "after"})
        limits = (os.stat(portal.data / "odd").st_mtime, taken)  # some file systems end earlier
        assert int(limits[0]) == taken or abs(limits[0]) < abs(limits[1])


async def test_numbers_of_plain_headers_are_bounded(portal: Portal) -> None:
    info = special("f", tarfile.REGTYPE, mtime=2**80, mode=2**40 + 0o777, uid=2**50)
    assert (await put(portal, info.tobuf(tarfile.GNU_FORMAT) + bytes(1024)))["written"] == 1
    assert stat.S_IMODE((portal.data / "f").stat().st_mode) == 0o755


async def test_files_before_a_cut_are_kept_whole(portal: Portal) -> None:
    archive = tar_of(("a", b"A"), ("b", b"B" * 5000))
    answer = await put(portal, archive[:3000], 400)
    assert (answer["code"], answer["written"]) == ("cut-off", 1)
    assert os.listdir(portal.data) == ["a"]


async def test_there_is_a_limit_of_members_and_of_bytes(portal: Portal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tar_reading, "MOST_MEMBERS", 3)
    refusal = await put(portal, tar_of(*((str(number), b"x") for number in range(5))), 413)
    assert (refusal["code"], refusal["written"]) == ("too-many", 3)
    await portal.json("PUT", "/limit", rights="manage", json={"bytes": 100})
    assert (await put(portal, tar_of(("big", b"x" * 200)), 507))["code"] == "quota"
    assert not (portal.data / "big").exists()


async def test_many_members_come_in_several_batches(portal: Portal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_views, "_BATCH_ITEMS", 7)
    answer = await put(portal, tar_of(*((f"d{number % 3}/{number}", b"x") for number in range(50))))
    assert answer["written"] == 50
    assert sum(len(files) for _, _, files in os.walk(portal.data)) == 50


def fill(portal: Portal) -> dict[str, bytes]:
    files = {"top/a.txt": b"A", "top/sub/b": os.urandom(2 * 2**20 + 1), "top/ä": b"", "other": b"o"}
    for name, data in files.items():
        (portal.data / name).parent.mkdir(parents=True, exist_ok=True)
        (portal.data / name).write_bytes(data)
    (portal.data / "top/link").symlink_to("a.txt")
    (portal.data / "top/empty").mkdir()
    os.mkfifo(portal.data / "top/pipe")
    return files


async def test_a_zip_has_everything_in_it_and_names_the_rest(portal: Portal, each_way: str) -> None:
    files = fill(portal)
    response = await portal.ask("GET", "/archive")
    content = await response.read()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        found = {one.filename: archive.read(one) for one in archive.infolist() if not one.is_dir()}
        note = found.pop("NOT INCLUDED.txt").decode()
        assert found == files
        assert sorted(note.splitlines()[1:]) == ["top/link: a link", "top/pipe: a device, pipe or socket"]
        assert "top/empty/" in archive.namelist()


async def test_a_zip_of_some_paths_names_them_from_where_they_lie(portal: Portal) -> None:
    fill(portal)
    response = await portal.ask("GET", "/archive?path=top/sub&path=other")
    with zipfile.ZipFile(io.BytesIO(await response.read())) as archive:
        assert sorted(archive.namelist()) == ["other", "sub/", "sub/b"]
    assert 'filename="files.zip"' in response.headers["Content-Disposition"]
    await portal.json("GET", "/archive?path=none", 404)
    await portal.json("GET", "/archive?path=../x", 422)
    await portal.json("GET", "/archive?format=rar", 422)


async def test_a_tar_can_be_put_back(portal: Portal) -> None:
    files = fill(portal)
    content = await (await portal.ask("GET", "/archive?format=tar")).read()
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        assert archive.getmember("top/link").linkname == "a.txt"
    other = await portal.create(uuid.uuid4())
    answer = await portal.json("PUT", "/archive", folder_id=other, data=content)
    assert answer["refused"] == []
    again = await portal.ask("GET", "/content?path=top/sub/b", folder_id=other)
    assert await again.read() == files["top/sub/b"]


async def test_a_zip_of_too_many_files_is_refused_with_the_way_out(
    portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_views, "MOST_IN_ZIP", 2)
    fill(portal)
    assert "format=tar" in (await portal.json("GET", "/archive", 413))["message"]
    assert (await portal.ask("GET", "/archive?format=tar")).status == 200


async def unpacked(portal: Portal, query: str, folder: str) -> dict[str, bytes]:
    content = await (await portal.ask("GET", f"/archive?{query}&format={folder}")).read()
    if folder == "zip":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            assert archive.testzip() is None
            return {one.filename: archive.read(one) for one in archive.infolist() if not one.is_dir()}
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        found = {one.name: archive.extractfile(one) for one in archive if one.isreg()}
        return {name: file.read() for name, file in found.items() if file}


def _unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("open_file", "open_directory"):
        real = getattr(beneath, name)

        def opened(directory: int, parts: beneath.Parts, *, real: Any = real, **more: Any) -> int:
            if parts and parts[-1].startswith(b"closed"):
                raise PermissionError(errno.EACCES, "Permission denied")
            return int(real(directory, parts, **more))

        monkeypatch.setattr(beneath, name, opened)


@pytest.mark.parametrize("kind", ["zip", "tar"])
async def test_odd_entries_are_named_and_the_rest_is_packed(
    portal: Portal, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("z/future", "z/past", "z/closed", "z/NOT INCLUDED.txt", "z/holes", "y/z/other", "z/closed-too/x"):
        (portal.data / name).parent.mkdir(parents=True, exist_ok=True)
        (portal.data / name).write_text(name)
    os.utime(portal.data / "z/future", (5 * 10**9,) * 2)
    os.utime(portal.data / "z/past", (-(10**9),) * 2)
    os.truncate(portal.data / "z/holes", 5 * 2**32)
    monkeypatch.setattr(packing, "_MOST_HOLES", 2**20)
    _unreadable(monkeypatch)
    found = await unpacked(portal, "path=z&path=y/z&path=z", kind)
    note = found.pop("NOT INCLUDED.txt").decode().splitlines()
    texts = ("z/future", "z/past", "z/NOT INCLUDED.txt")
    assert found == {name: name.encode() for name in texts} | {"z (2)/other": b"y/z/other"}
    assert sorted(line.partition(":")[0] for line in note[1:]) == ["z/closed", "z/closed-too", "z/holes"]
    assert "z/closed: Permission denied" in note and any("21474836480" in line or "zeros" in line for line in note)
    (portal.data / "NOT INCLUDED.txt").write_text("mine")
    found = await unpacked(portal, "path=", kind)
    assert found["NOT INCLUDED.txt"] == b"mine" and b"z/closed" in found["NOT INCLUDED (2).txt"]


async def test_small_holes_are_packed_and_names_that_look_alike_are_kept_apart(portal: Portal) -> None:
    for number, name in enumerate((b"caf\xe9.txt", b"caf\xea.txt", "日本 🎉".encode())):
        (portal.data / os.fsdecode(name)).write_text(str(number))
    (portal.data / "sparse").touch()
    os.truncate(portal.data / "sparse", 3_000_000)
    found = await unpacked(portal, "path=", "zip")
    assert found.pop("sparse") == bytes(3_000_000)
    assert found.keys() == {"caf\ufffd.txt", "caf\ufffd (2).txt", "日本 🎉"} and sorted(found.values()) == [
        b"0",
        b"1",
        b"2",
    ]


@pytest.mark.parametrize("kind", ["zip", "tar"])
async def test_files_that_change_while_they_are_packed_spoil_nothing(
    portal: Portal, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("shrunk", "grown", "whole"):
        (portal.data / name).write_bytes(name.encode() * 1000)
    real = packing.read_content

    def change(descriptor: int, size: int) -> Any:
        os.truncate(portal.data / "shrunk", 10)
        with (portal.data / "grown").open("ab") as file:
            file.write(b"more")
        return real(descriptor, size)

    monkeypatch.setattr(packing, "read_content", change)
    found = await unpacked(portal, "path=shrunk&path=grown&path=whole", kind)
    assert found["shrunk"] == b"shrunkshru" + bytes(5990 if kind == "tar" else 0)
    assert found["grown"][:5000] == b"grown" * 1000 and len(found["grown"]) == 5004
    assert found["whole"] == b"whole" * 1000


async def test_a_path_that_is_not_there_is_named(portal: Portal) -> None:
    assert "none/x" in (await portal.json("GET", "/archive?path=none/x", 404))["message"]
    (portal.data / "d").mkdir()
    assert "d/none" in (await portal.json("GET", "/archive?path=d/none&format=tar", 404))["message"]


async def test_large_files_have_zip64_records_and_small_ones_none() -> None:
    for size, is_large in ((2**33, True), (10, False)):
        status = os.stat_result((0o100644, 1, 1, 1, 0, 0, size, 0, 5 * 10**12, 0))
        archive = packing.Zip()
        head = archive.begin("f", status, size)
        assert (b"\x01\x00\x10\x00" in head) is is_large  # the extended record of sizes
