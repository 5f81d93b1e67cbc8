"""Lists and changes files in the home folder, with the rights of the session's user.

Paths are relative to the home folder; a path that is not UTF-8 is ``//raw:`` and its bytes in base64url. All functions
raise FileRefused, and OSError from the file system.
"""

from __future__ import annotations

import base64
import contextlib
import heapq
import json
import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backendai.agent.guest.home.contents import FileRefused, etag_of, home, mounts_below, place_of

MOST_SORTED = 20_000  # larger directories are listed by name only, without a stat of every file
MOST_NAMES = 200_000
_MOST_TRIES = 20
_PAGE, _MOST_PER_PAGE = 200, 1000
_MOST_PATHS = 1000
_MOST_FOUND = 500
_SEARCH_SECONDS = 10.0


def entries(order: dict[str, Any]) -> dict[str, Any]:
    """Return one page of a directory, subdirectories first."""
    place = place_of(str(order.get("path") or ""))
    by, is_descending = str(order.get("sort") or "name"), order.get("order") == "desc"
    limit = min(max(int(order.get("limit") or _PAGE), 1), _MOST_PER_PAGE)
    names, is_whole = _names(place)
    is_sorted = is_whole and (by == "name" or len(names) <= MOST_SORTED)
    # Directories come first in both orders.
    keys = [(is_file is not is_descending, name) for is_file, name in names]
    if is_sorted and by != "name":
        keys = list(_with_facts(place, keys, by))
    chosen, following = _cut(keys, limit, is_descending, str(order.get("after") or ""))
    found = [entry for key in chosen if (entry := describe(place / os.fsdecode(key[-1]))) is not None]
    return {"entries": found, "next": following, "total": len(names), "sorted": is_sorted, "as_of": time.time()}


def entry(order: dict[str, Any]) -> dict[str, Any]:
    """Return the entry at a path; the home folder's name is empty. Raises FileRefused."""
    place = place_of(str(order.get("path") or ""))
    found = describe(place)
    if found is None:
        raise FileRefused("There is no such file.", "no-such-file")
    return {**found, "name": ""} if place == home() else found


def make_directory(order: dict[str, Any]) -> dict[str, Any]:
    """Create a directory and return its entry. Raises FileRefused."""
    place = place_of(str(order["path"]))
    place.mkdir()
    return describe(place) or {}


def move(order: dict[str, Any]) -> dict[str, Any]:
    """Move a file or directory and return its entry; overwrites only if the order says so. Raises FileRefused."""
    source, target = _named(str(order["source"])), _named(str(order["target"]))
    _refuse_mounts(source)
    os.lstat(source)
    if source.resolve() in (target.parent.resolve(), *target.parent.resolve().parents):
        raise FileRefused("A directory cannot be moved into itself: choose another one.", "inside-itself")
    if os.path.lexists(target) and not order.get("overwrite") and not _is_same(source, target):
        raise FileRefused("There is a file or directory of this name: choose another name.", "exists")
    source.rename(target)
    return describe(target) or {}


def remove(order: dict[str, Any]) -> dict[str, Any]:
    """Delete files and directories with their contents permanently; returns the number. Skips missing paths. Raises
    FileRefused, also if all are missing."""
    paths = order["paths"]
    if not isinstance(paths, list) or not 1 <= len(paths) <= _MOST_PATHS:
        raise FileRefused("Name 1 to {most} files or directories.", "bad-path", most=_MOST_PATHS)
    places = [_named(str(path)) for path in paths]
    for place in places:
        _refuse_mounts(place)
    deleted = sum([_removed(place) for place in places])
    if not deleted:
        raise FileRefused("There is no such file.", "no-such-file")
    return {"deleted": deleted}


def _removed(place: Path) -> bool:
    """Delete a file, or a directory with its contents; returns whether it existed."""
    was_there = os.path.lexists(place)
    for tries_left in reversed(range(_MOST_TRIES)):
        try:
            (shutil.rmtree if place.is_dir() and not place.is_symlink() else os.unlink)(place)
            break
        except PermissionError:
            if not _opened_up(place):
                raise
        except FileNotFoundError:  # another program deletes here too: delete the rest
            if not os.path.lexists(place):
                break
            if not tries_left:
                raise
    return was_there


def _opened_up(place: Path) -> bool:
    """Give the owner of a directory all rights in it and in those below, as in a module cache of Go; returns whether
    any were missing."""
    missing = 0
    for where, _, _ in os.walk(place, onerror=lambda _: None) if place.is_dir() and not place.is_symlink() else ():
        for name in [".", *(entry.name for entry in os.scandir(where) if entry.is_dir(follow_symlinks=False))]:
            mode = Path(where, name).stat().st_mode
            if mode & stat.S_IRWXU != stat.S_IRWXU:
                Path(where, name).chmod(stat.S_IMODE(mode) | stat.S_IRWXU)
                missing += 1
    return bool(missing)


def search(order: dict[str, Any]) -> dict[str, Any]:
    """Return entries below a path whose names contain ``q``, case-insensitively. Stops after 10 s or 500 entries.
    Raises FileRefused."""
    top, wanted = place_of(str(order.get("path") or "")), str(order["q"]).casefold()
    until = time.monotonic() + _SEARCH_SECONDS
    found: list[dict[str, Any]] = []
    for where, directories, files in os.walk(top):
        for name in [*directories, *files]:
            if time.monotonic() > until or len(found) >= _MOST_FOUND:
                return {"entries": found, "complete": False}
            if wanted in name.casefold() and (one := describe(Path(where, name))) is not None:
                found.append({**one, **_shown_path(Path(where, name))})
    return {"entries": found, "complete": True}


def describe(place: Path) -> dict[str, Any] | None:
    """Return one entry; None if it does not exist."""
    try:
        found = place.lstat()
        kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
        kind = kinds.get(stat.S_IFMT(found.st_mode), "other")
        told = {**_shown(os.fsencode(place.name), "name", "raw"), "kind": kind, "size": found.st_size}
        told.update(mtime=found.st_mtime_ns / 1e9, etag=etag_of(found))
        if kind == "link":
            target = os.readlink(place)  # noqa: PTH115  Python 3.8 has no Path.readlink
            told["target"] = os.fsencode(target).decode(errors="replace")
    except OSError:
        return None
    return told


def _shown_path(place: Path) -> dict[str, str]:
    return _shown(os.fsencode(place.relative_to(home())), "path", "raw_path")


def _shown(name: bytes, key: str, raw_key: str) -> dict[str, str]:
    """Return a name for JSON: as text, and additionally in base64url if it is not UTF-8."""
    try:
        return {key: name.decode()}
    except UnicodeDecodeError:
        return {key: name.decode(errors="replace"), raw_key: _encode(name)}


def _encode(name: bytes) -> str:
    return base64.urlsafe_b64encode(name).decode().rstrip("=")


def _named(path: str) -> Path:
    place = place_of(path)
    if place == home():
        raise FileRefused("The home folder itself stays: name a file or directory in it.", "bad-path")
    return place


def _refuse_mounts(place: Path) -> None:
    if found := mounts_below(place):
        name = os.path.relpath(found[0], home())
        raise FileRefused(
            "The folder mounted at {name} lies there: delete or move its files in the folder itself.",
            "mounted",
            name=os.fsencode(name).decode(errors="replace"),
        )


def _is_same(source: Path, target: Path) -> bool:
    """Return whether both paths are the same file, as on a case-insensitive file system."""
    return os.path.samestat(os.lstat(source), os.lstat(target)) and not source.is_symlink()


def _names(place: Path) -> tuple[list[tuple[bool, bytes]], bool]:
    """Return ``(is not a directory, name)`` of each entry, and whether the list is complete."""
    found: list[tuple[bool, bytes]] = []
    with os.scandir(os.fsencode(place)) as listed:
        for one in listed:
            if len(found) >= MOST_NAMES:
                return found, False
            found.append((not one.is_dir(follow_symlinks=False), one.name))
    return found, True


def _with_facts(place: Path, keys: list[tuple[Any, ...]], by: str) -> Iterator[tuple[Any, ...]]:
    for is_file, name in keys:
        with contextlib.suppress(OSError):
            found = os.lstat(place / os.fsdecode(name))
            yield is_file, found.st_size if by == "size" else found.st_mtime_ns, name


def _cut(keys: list[Any], limit: int, is_descending: bool, cursor: str) -> tuple[list[Any], str | None]:
    """Return this page's keys, and the next page's cursor. Raises FileRefused."""
    if cursor:
        after = _read_cursor(cursor)
        if keys and len(after) != len(keys[0]):
            raise FileRefused("This cursor belongs to a list in another order: begin anew.", "bad-cursor")
        keys = [key for key in keys if (key < after if is_descending else key > after)]
    chosen = (heapq.nlargest if is_descending else heapq.nsmallest)(limit + 1, keys)
    if len(chosen) <= limit:
        return chosen, None
    *facts, name = chosen[limit - 1]
    return chosen[:limit], _encode(json.dumps([*facts, _encode(name)]).encode())


def _read_cursor(text: str) -> tuple[Any, ...]:
    try:
        *facts, name = json.loads(_decode(text))
        if not facts or not all(isinstance(fact, (bool, int)) for fact in facts):
            raise TypeError
        return (*facts, _decode(name))
    except (ValueError, TypeError) as error:
        raise FileRefused("This is not a cursor of a list: begin anew.", "bad-cursor") from error


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
