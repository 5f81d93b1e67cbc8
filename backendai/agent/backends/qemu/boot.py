"""The boot files of virtual machines: Linux from Debian's package, and an initial RAM disk with our first process.

They are built once per kernel package and version of our sources, into a cache: about 2 s.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import re
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from backendai.agent.backends.base import BackendError
from backendai.agent.backends.shared.trees import remove_tree

_SOURCES = Path(__file__).with_name("init")
# insmod does not resolve dependencies, so they are read from each module's file.
_MODULES = ("virtio_pci", "virtio_blk", "virtio_console", "squashfs", "overlay", "virtio_net", "virtiofs")
_COMPILER = ("-Os", "-static", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-s")
_SECONDS = 120.0
_KEPT_SECONDS = 24 * 3600.0
_SETUP_SECTORS, _PAYLOAD = 0x1F1, 0x248  # offsets in a bzImage's header
_MAGIC: tuple[tuple[bytes, tuple[str, ...]], ...] = (
    (b"\x02\x21\x4c\x18", ("lz4", "-q", "-d")),
    (b"\x28\xb5\x2f\xfd", ("zstd", "-q", "-d")),
)
_DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")


@dataclass(frozen=True, slots=True)
class BootFiles:
    """An uncompressed Linux kernel, which QEMU enters by PVH, and the initial RAM disk."""

    kernel: Path
    initrd: Path
    release: str


class Boot:
    """Builds the boot files of the newest Linux kernel below ``root`` (``/``, or a folder with unpacked packages)."""

    def __init__(self, root: Path, cache: Path) -> None:
        self._root, self._cache, self._making = root, cache / "boot", threading.Lock()

    def files(self) -> BootFiles:
        """Return the files; builds them if needed. Raises BackendError."""
        with self._making:
            try:
                image = newest_kernel(self._root)
                release = image.name.partition("-")[2]
                folder = self._cache / f"{release}-{_version(image)}"
                if not folder.is_dir():
                    self._make(image, release, folder)
            except (OSError, subprocess.SubprocessError, lzma.LZMAError, struct.error) as error:
                text = "The files that virtual machines boot cannot be made: {error}"
                raise BackendError(text, error=str(error)) from error
        return BootFiles(folder / "vmlinux", folder / "initrd", release)

    def _make(self, image: Path, release: str, folder: Path) -> None:
        self._cache.mkdir(parents=True, exist_ok=True)
        for left in self._cache.iterdir():  # of an earlier version or an interrupted build
            if time.time() - left.stat().st_mtime > _KEPT_SECONDS:  # another agent may be building its own
                remove_tree(left)
        draft = folder.with_name(f".{folder.name}.{os.getpid()}")
        draft.mkdir()
        (draft / "vmlinux").write_bytes(uncompressed(image.read_bytes()))
        first = draft / "init"
        sources = sorted(map(str, _SOURCES.glob("*.c")))
        subprocess.run(["gcc", *_COMPILER, "-o", str(first), *sources], check=True, timeout=_SECONDS)
        modules = dict(_modules(self._root / "lib/modules" / release))
        (draft / "initrd").write_bytes(gzip.compress(_archive(first.read_bytes(), modules), compresslevel=1))
        first.unlink()
        for file in draft.iterdir():
            file.chmod(0o644)
        for opened in (draft, self._cache):
            opened.chmod(0o755)
        try:
            draft.rename(folder)
        except OSError:
            remove_tree(draft)
            if not folder.is_dir():  # else another agent has built it
                raise


def newest_kernel(root: Path) -> Path:
    """Return the newest kernel image whose modules are installed. Raises BackendError."""
    found = [one for one in (root / "boot").glob("vmlinuz-*") if _modules_of(root, one).is_dir()]
    if not found:
        text = "There is no Linux kernel in {folder}: install linux-image-cloud-amd64."
        raise BackendError(text, folder=str(root / "boot"), code="qemu-no-kernel")
    return max(found, key=lambda one: [int(number) for number in re.findall(r"\d+", one.name)])


def uncompressed(image: bytes) -> bytes:
    """Return the ELF file in a bzImage. Raises OSError if this machine lacks a program for its compression."""
    setup = (image[_SETUP_SECTORS] + 1) * 512
    offset, length = struct.unpack_from("<II", image, _PAYLOAD)
    payload = image[setup + offset : setup + offset + length]
    if payload.startswith(b"\x1f\x8b"):
        return gzip.decompress(payload)
    if payload.startswith(b"\xfd7zXZ"):
        return lzma.LZMADecompressor().decompress(payload)
    for magic, command in _MAGIC:
        if payload.startswith(magic):
            if shutil.which(command[0]) is None:
                raise OSError(f"the kernel is packed with {command[0]}: install {command[0]}")
            return subprocess.run(command, input=payload[:-4], capture_output=True, timeout=_SECONDS).stdout
    raise OSError(f"the compression of the kernel ({payload[:4].hex()}) is not known")


def _modules_of(root: Path, image: Path) -> Path:
    return root / "lib/modules" / image.name.partition("-")[2]


def _version(image: Path) -> str:
    digest = hashlib.sha256(f"{image.stat().st_size} {image.stat().st_mtime_ns} {_MODULES} {_COMPILER}".encode())
    for source in sorted(_SOURCES.iterdir()):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _modules(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the modules in loading order, without those built into the kernel."""
    files = {path.name.partition(".")[0].replace("-", "_"): path for path in folder.rglob("*.ko*")}
    done: set[str] = set()

    def visit(name: str) -> Iterator[tuple[str, bytes]]:
        if name in done or name not in files:
            return
        done.add(name)
        content = files[name].read_bytes()
        if files[name].suffix == ".xz":
            content = lzma.decompress(content)
        found = _DEPENDS.search(content)
        for needed in found[1].decode().split(",") if found else ():
            yield from visit(needed.replace("-", "_"))
        yield f"{name}.ko", content

    for wanted in _MODULES:
        yield from visit(wanted)


def _archive(first: bytes, modules: dict[str, bytes]) -> bytes:
    """Return a cpio archive (newc), the format of initial RAM disks."""
    folders = ("dev", "proc", "sys", "lower", "scratch", "root", "modules")
    order = "".join(f"{name}\n" for name in modules).encode()
    entries: list[tuple[str, int, bytes]] = [(name, 0o40755, b"") for name in folders]
    entries += [("init", 0o100755, first), ("modules/order", 0o100644, order)]
    entries += [(f"modules/{name}", 0o100644, content) for name, content in modules.items()]
    return b"".join(_entries([*entries, ("TRAILER!!!", 0, b"")]))


def _entries(entries: Iterable[tuple[str, int, bytes]]) -> Iterator[bytes]:
    for number, (name, mode, content) in enumerate(entries, 1):
        named = name.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(named), 0)
        head = b"070701" + b"".join(b"%08x" % field for field in fields) + named
        yield head + bytes(-len(head) % 4) + content + bytes(-len(content) % 4)
