"""Paths that mean harm, by what must become of each, and a folder with links of every kind beside secrets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from uuid import UUID

from backendai.base.paths.storage_layout import folder_path
from backendai.files.folders.lifecycle import create

SECRET = b"the secret of somebody else"
OTHER = UUID(int=7)

_LINKS_OUT = {
    "abs": "/etc",
    "abs-file": "/etc/passwd",
    "up": "..",
    "up-file": "../meta.json",
    "far": "../../../" + str(OTHER),
    "proc": "/proc/self",
    "proc-root": "/proc/self/root",
    "proc-cwd": "/proc/self/cwd",
    "proc-fd": "/proc/self/fd",
    "dev": "/dev/fd",
    "out-and-in": "../data/d",
    "chain": "d/chain",
    "loop": "loop",
    "ping": "pong",
    "pong": "ping",
}
_BEHIND = ("", "/", "/f", "/passwd", "/meta.json", "/data/f", "/0", "/environ", "/..", "/./f")

_MALFORMED: list[str | bytes] = [
    *("..", "../", "./..", "../.", "../..", "..//..", "a/..", "a/../..", "d/..", "d/../f"),
    *("d/../../meta.json", "../meta.json", "../data/f", "../incoming", "../trash", "../" * 40 + "etc/passwd"),
    *("d/e/../../../meta.json", "./../data", "f/..", "..//f", "d/./../f", "abs/../f", "up/../../f"),
    *("...//..", "d//..//..", "\n/..", "../\n", "/", "//", "///", "/.", "/..", "/f", "/d/f", "/etc/passwd"),
    *("//etc/passwd", "/proc/self/environ", "/dev/stdin", "/proc/self/root/etc/passwd", "/proc/self/fd/0"),
    *("/proc/1/root", "/tmp", "/root/.ssh/id_rsa", "/./f", "/\n", "\0", "f\0", "f\0.txt", "\0/f", "d/\0"),
    *("d/\0/f", "f\0/../../meta.json", "..\0", "\0" * 300, "x" * 256, "d/" + "x" * 256, "x" * 4001),
    *("é" * 128, "日" * 86, "d/" * 2001, "/".join("a" * 257), "./" * 2001, "\ud800", "d/\udfff", "f\udc80"),
    *("//raw:Li4v/f", "//raw:!", b"..\0", b"/\xff", b"\xff/..", b"\xff" * 256, b"\0\xff"),
]

_ONLY_NAMES: list[str | bytes] = [
    *("...", "....", "..a", "a..", ".. ", " ..", ". .", ".a", "d/...", "...//f", "-", "-rf", "--", "--help"),
    *("~", "~root", "a\nb", "\n", "\r\n", "a\rb", "\t", "\x01", "\x1b[31mred", "\x1b]0;title\x07", "\x7f"),
    *("\b\b", "\v", "\f", "%2e%2e", "%2e%2e%2f", "..%2f", "..%2f..%2fmeta.json", "%252e%252e%252fmeta.json"),
    *("%2fetc%2fpasswd", "%00", "f%00.txt", "%c0%ae%c0%ae", "%uff0e%uff0e", "&#46;&#46;", "\\u002e\\u002e"),
    *("..;", "..;/f", "0x2e0x2e", "..\\", "..\\..\\meta.json", "\\", "\\etc\\passwd", "d\\..\\..\\f", "C:"),
    *("C:\\Windows", "C:/Windows", "\\\\host\\c$", "\\\\?\\C:\\", "CON", "NUL", "aux.txt"),
    *("LPT1", "f:stream", "f::$DATA", "f ", "f.", "desktop.ini", "..\\/f", "\u202egnp.exe", "\u202d\u202e"),
    *("\u200b", "\u200b..", "\u2060", "\u2066a\u2069", "\ufeff", "\u00ad", "\u0301", "\u2024\u2024"),
    *("\u2024\u2024/f", "\uff0e\uff0e", "\uff0e\uff0e/f", "\u2215etc", "\uff0fetc", "\u2044etc", "\u2025"),
    *("ä", "a\u0308", "Ⅷ", "ﬁ", "K", "ı", "ẞ", "日本", "🗂️", "\U0001f1e9\U0001f1ea", "\U000e0041"),
    *("\u2028", "$(id)", "`id`", "$HOME", "*", "?", "[a-z]", "{a,b}", "|id", ";id", "&", "!!", "#", "'", '"'),
    *("<b>", "<script>", "'; DROP TABLE folder; --", "{{7*7}}", "${7*7}", "%s%n", "a=b", "a?b=c", "a#b"),
    *("a&path=../x", "meta.json", "size.json", "data", "incoming", "trash", ".gone-1"),
    *(".backendai-storage.json", "x.upload", "x.part", "x" * 255, "é" * 127, "/".join("a" * 256)),
    *("d/" * 50 + "f", "./f", "d//f", "f/", ".//.//f", "d/./f", "f/f", b"\xff", b"\xfe\xff", b"a\x80b"),
    *(b"\xc0\xaf", b"..\xc0\xaf..", b"\xc0\xae\xc0\xae", b"\xe0\x80\xaf", b"\xe0\x80\xae", b"\xed\xa0\x80"),
    *(b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xc3", b"d/\xff/f", b"\xff\n", b"\x80.."),
    b"\xff" * 255,
]


def bytes_of_path(path: str | bytes) -> bytes:
    return path if isinstance(path, bytes) else path.encode(errors="surrogatepass")


def hostile_paths() -> Iterator[tuple[str, str | bytes]]:
    """Yield each path with what it is: ``refused`` always, ``link`` (one that leads out, or nowhere), or ``name``."""
    yield from (("refused", path) for path in _MALFORMED)
    for link, behind in product(_LINKS_OUT, _BEHIND):
        yield ("link" if behind in ("", "/") else "refused"), link + behind
    yield from (("name", path) for path in _ONLY_NAMES)


def fill(data: Path) -> None:
    """Write files, directories and links that lead out into a folder."""
    (data / "d/e").mkdir(parents=True)
    (data / "f").write_text("f")
    (data / "d/f").write_text("f")
    for name, target in _LINKS_OUT.items():
        (data / name).symlink_to(target)
    (data / "d/chain").symlink_to("../up")


def make_secrets(root: int, path: Path) -> None:
    """Make another folder with a secret, and a secret beside the storage host."""
    create(root, OTHER, 1, {"name": "other"})
    for secret in (folder_path(path, OTHER) / "data/f", path / "f", path.parent / "f"):
        secret.write_bytes(SECRET)


def picture(top: Path, without: Path) -> dict[str, tuple[int, ...]]:
    """Return what lies below a directory, but for one: kinds, sizes and times of change."""
    found = {}
    for where, directories, files in os.walk(top):
        if Path(where) == without:
            directories.clear()
            continue
        for name in [*directories, *files]:
            if (path := Path(where) / name) != without:
                told = path.lstat()
                found[str(path)] = (told.st_mode, told.st_size, told.st_mtime_ns, told.st_ctime_ns, told.st_ino)
    return found
