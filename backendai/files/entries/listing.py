"""Lists the entries of a folder for callers: pages of a directory, single entries, search by name."""

from __future__ import annotations

import heapq
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from backendai.base.core.errors import UserError
from backendai.base.paths import beneath
from backendai.base.paths.beneath import Parts
from backendai.base.paths.path_texts import decode_raw, encode_raw
from backendai.base.paths.tree_walk import walk_names
from backendai.files.entries.long_lists import LongList, Names, names_of
from backendai.files.entries.tree import FolderTree, read_size
from backendai.files.limits.quota import Amount
from backendai.files.refusals import Refusal

Key = tuple[Any, ...]
MOST_SORTED = 20_000  # larger directories are listed by name only, without a stat of every file
MOST_PER_PAGE = 1000
_MOST_FOUND = 500


@dataclass(frozen=True, slots=True)
class Order:
    """The order and page of a requested list."""

    by: str = "name"
    descending: bool = False
    limit: int = 200
    after: str = ""


def shown(name: bytes) -> dict[str, str]:
    """Return a name for JSON: as text, and additionally in base64url if it is not UTF-8."""
    try:
        return {"name": name.decode()}
    except UnicodeDecodeError:
        return {"name": name.decode(errors="replace"), "raw": encode_raw(name)}


def shown_path(parts: Parts) -> dict[str, str]:
    """Return a path for JSON."""
    told = shown(b"/".join(parts))
    return {"path": told["name"], **({"raw_path": told["raw"]} if "raw" in told else {})}


def etag_of(found: os.stat_result) -> str:
    """Return the etag of a file, which changes with the file."""
    return f"{found.st_mtime_ns}-{found.st_size}-{found.st_ino}"


def kind_of(mode: int) -> str:
    """Return the kind of an entry; only files and directories are ever opened."""
    names = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
    return names.get(stat.S_IFMT(mode), "other")


def describe(parent: int, name: bytes) -> dict[str, Any]:
    """Return one entry. Raises FileNotFoundError."""
    found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    kind = kind_of(found.st_mode)
    entry: dict[str, Any] = {
        **shown(name),
        "kind": kind,
        "size": found.st_size,
        "mtime": found.st_mtime_ns / 1e9,
        "etag": etag_of(found),
    }
    if kind == "link":
        entry["target"] = os.readlink(name, dir_fd=parent).decode(errors="replace")
    return entry


def read_entry(tree: FolderTree, parts: Parts) -> dict[str, Any]:
    """Return the entry at a path; the folder itself is a directory without a name."""
    if not parts:
        found = os.fstat(tree.data)
        told = {"size": found.st_size, "mtime": found.st_mtime_ns / 1e9, "etag": etag_of(found)}
        return {"name": "", "kind": "directory", **told, "read_only": tree.read_only}
    directory = beneath.open_directory(tree.data, parts[:-1], follow=True)
    try:
        return describe(directory, parts[-1])
    finally:
        os.close(directory)


def read_page(tree: FolderTree, parts: Parts, order: Order, *, is_quick: bool = False) -> dict[str, Any]:
    """Return one page of a directory, subdirectories first. Above 20,000 entries it is always sorted by name, which the
    result says. ``is_quick``: raises LongList above 20,000 entries, unless their names are known."""
    directory = beneath.open_directory(tree.data, parts, follow=True)
    try:
        names = names_of(directory, MOST_SORTED if is_quick else None)
        is_sorted = order.by == "name" or len(names) <= MOST_SORTED
        if order.by == "name" and not order.descending:
            chosen, following = _cut_sorted(names, order)
        elif is_quick and len(names) > MOST_SORTED:
            raise LongList
        else:
            # Directories come first in both orders.
            keys: list[Key] = [(is_file is not order.descending, name) for is_file, name in names]
            if is_sorted and order.by != "name":
                keys = list(_with_facts(directory, keys, order.by))
            chosen, following = _cut(keys, order)
        found = [entry for key in chosen if (entry := _describe(directory, key[-1])) is not None]
    finally:
        os.close(directory)
    size = read_size(tree.base)
    told = {"entries": found, "next": following, "total": len(names), "sorted": is_sorted, "as_of": time.time()}
    return {**told, "folder_size": asdict(size) if size else None}


def search(
    tree: FolderTree, parts: Parts, words: str, *, until: float, stopped: threading.Event, clock: Callable[[], float]
) -> dict[str, Any]:
    """Return entries below a path whose names contain ``words``, case-insensitively. Ends at ``until`` or when
    ``stopped`` is set."""
    wanted = words.casefold()
    found: list[dict[str, Any]] = []
    top = beneath.open_directory(tree.data, parts, follow=True)
    try:
        for where, parent, name in walk_names(top):
            if clock() > until or stopped.is_set() or len(found) >= _MOST_FOUND:
                return {"entries": found, "complete": False}
            if wanted in name.decode(errors="replace").casefold() and (entry := _describe(parent, name)):
                found.append({**entry, **shown_path((*parts, *where, name))})
    finally:
        os.close(top)
    return {"entries": found, "complete": True}


def amount_below(tree: FolderTree, parts: Parts) -> Amount:
    """Return the total bytes and the number of entries at and below a path. Raises FileNotFoundError."""
    with beneath.parent_of(tree.data, parts) as (parent, name):
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if not stat.S_ISDIR(found.st_mode):
            return Amount(found.st_size, 1)
        top = beneath.open_directory(parent, (name,), follow=False)
    try:
        sizes = [size_of(directory, name) for _, directory, name in walk_names(top)]
        return Amount(sum(sizes), 1 + len(sizes))
    finally:
        os.close(top)


def size_of(parent: int, name: bytes) -> int:
    """Return a regular file's size in bytes; 0 for other entries."""
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def _describe(directory: int, name: bytes) -> dict[str, Any] | None:
    try:
        return describe(directory, name)
    except FileNotFoundError:
        return None  # deleted meanwhile


def _with_facts(directory: int, names: list[Key], by: str) -> Iterator[Key]:
    for is_file, name in names:
        try:
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            continue
        yield is_file, found.st_size if by == "size" else found.st_mtime_ns, name


def _cut_sorted(names: Names, order: Order) -> tuple[list[Key], str | None]:
    """Return this page's names, and the next page's cursor. Does not iterate over other names."""
    after = _read_cursor(order.after) if order.after else None
    if after and len(after) != 2:
        raise _other_order()
    chosen: list[Key] = list(names.page((bool(after[0]), after[1]) if after else None, order.limit + 1))
    return chosen[: order.limit], _cursor(chosen[order.limit - 1]) if len(chosen) > order.limit else None


def _other_order() -> Refusal:
    return Refusal(422, "bad-cursor", "This cursor belongs to a list in another order; begin anew.")


def _cut(keys: list[Key], order: Order) -> tuple[list[Key], str | None]:
    """Return this page's keys, and the next page's cursor."""
    if order.after:
        after = _read_cursor(order.after)
        if after and len(after) != len(keys[0] if keys else after):
            raise _other_order()
        keys = [key for key in keys if (key < after if order.descending else key > after)]
    pick = heapq.nlargest if order.descending else heapq.nsmallest
    chosen = pick(order.limit + 1, keys)
    if len(chosen) <= order.limit:
        return chosen, None
    chosen = chosen[: order.limit]
    return chosen, _cursor(chosen[-1])


def _cursor(key: Key) -> str:
    return encode_raw(json.dumps([*key[:-1], encode_raw(key[-1])]).encode())


def _read_cursor(text: str) -> Key:
    try:
        *facts, name = json.loads(decode_raw(text))
        if not all(isinstance(fact, (bool, int)) for fact in facts):
            raise TypeError
        return (*facts, decode_raw(name))
    except (ValueError, TypeError, UserError) as error:
        raise Refusal(422, "bad-cursor", "This is not a cursor of a list; begin anew.") from error
