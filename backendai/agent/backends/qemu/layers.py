"""Flattens an image: merges the layers in an archive of ``docker save`` as a container would see them."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

_HIDDEN, _HIDES_ALL = ".wh.", ".wh..wh..opq"
_DEFINITIONS = PurePosixPath("etc/backend.ai/service-defs")
_LARGEST_DEFINITION = 64 * 2**10


@dataclass(frozen=True, slots=True)
class _Place:
    """A file: the number of its layer, and its entry there."""

    layer: int
    entry: tarfile.TarInfo


class ArchiveLayers:
    """The layers of an archive's only image, lowest first. Use it in ``with``, which closes it."""

    def __init__(self, archive: Path) -> None:
        self._outer = tarfile.open(archive)  # noqa: SIM115 - closed by __exit__
        said = self._json("manifest.json")[0]
        self.config: dict[str, Any] = self._json(said["Config"])
        self._layers = [self._layer(name) for name in said["Layers"]]
        self._found = self._merged()

    def __enter__(self) -> ArchiveLayers:
        return self

    def __exit__(self, *about: object) -> None:
        for layer in self._layers:
            layer.close()
        self._outer.close()

    def write(self, output: IO[bytes]) -> None:
        """Write one archive of all files: folders before their contents, links after their targets."""
        with tarfile.open(fileobj=output, mode="w|", format=tarfile.PAX_FORMAT) as flat:
            links: list[tuple[str, _Place]] = []
            for name, place in sorted(self._found.items()):
                if place.entry.islnk():
                    links.append((name, place))
                else:
                    self._add(flat, name, place)
            for name, place in links:
                target = _clean(place.entry.linkname)
                there = self._found.get(target)
                if there is not None and there.layer == place.layer and not there.entry.islnk():
                    flat.addfile(_named(place.entry, name, target))
                else:  # a later layer hides the target: the link becomes the file
                    self._add(flat, name, _Place(place.layer, self._original(place)))

    def definitions(self) -> Iterator[tuple[str, bytes]]:
        """Yield name and definition file of each service."""
        for name, place in self._found.items():
            path = PurePosixPath(name)
            if path.parent == _DEFINITIONS and path.suffix == ".json" and place.entry.isfile():
                content = self._layers[place.layer].extractfile(place.entry)
                if content is not None and place.entry.size <= _LARGEST_DEFINITION:
                    yield path.stem, content.read()

    def _json(self, name: str) -> Any:
        file = self._outer.extractfile(name)
        assert file is not None
        return json.load(file)

    def _layer(self, name: str) -> tarfile.TarFile:
        member = self._outer.getmember(name)
        if member.issym():  # old engines link identical layers
            member = self._outer.getmember(str(PurePosixPath(name).parent.joinpath(member.linkname)))
        return tarfile.open(fileobj=self._outer.extractfile(member))

    def _merged(self) -> dict[str, _Place]:
        found: dict[str, _Place] = {}
        for number, layer in enumerate(self._layers):
            added: dict[str, _Place] = {}
            hidden: list[str] = []
            for entry in layer:
                name = _clean(entry.name)
                path = PurePosixPath(name)
                if path.name == _HIDES_ALL:
                    hidden.append(f"{path.parent}/" if str(path.parent) != "." else "")
                elif path.name.startswith(_HIDDEN):
                    hidden.append(str(path.parent / path.name.removeprefix(_HIDDEN)))
                elif name:
                    added[name] = _Place(number, entry)
            replaced = {name for name, place in added.items() if not place.entry.isdir()}
            found = {name: place for name, place in found.items() if not _is_hidden(name, hidden, replaced)}
            found |= added
        return found

    def _original(self, place: _Place) -> tarfile.TarInfo:
        """Return the target of a hard link in its own layer."""
        return self._layers[place.layer].getmember(place.entry.linkname)

    def _add(self, flat: tarfile.TarFile, name: str, place: _Place) -> None:
        content = self._layers[place.layer].extractfile(place.entry) if place.entry.isfile() else None
        flat.addfile(_named(place.entry, name, place.entry.linkname), content)


def _is_hidden(name: str, hidden: list[str], replaced: set[str]) -> bool:
    """Return whether upper layers hide a file: by a mark for it or a folder above, or by a file in place of such a
    folder."""
    if any(name.startswith(mark) if mark.endswith("/") or not mark else name == mark for mark in hidden):
        return True
    above = PurePosixPath(name).parents
    return any(str(folder) in replaced or str(folder) in hidden for folder in above)


def _named(entry: tarfile.TarInfo, name: str, target: str) -> tarfile.TarInfo:
    copy = entry.replace(name=name, linkname=target, deep=True)
    kept = {key: value for key, value in entry.pax_headers.items() if key not in ("path", "linkpath")}
    copy.pax_headers = kept
    return copy


def _clean(name: str) -> str:
    """Return the path below the root, without ``..``."""
    parts: list[str] = []
    for part in PurePosixPath("/", name).parts[1:]:
        if part == "..":
            parts = parts[:-1]
        else:
            parts.append(part)
    return "/".join(parts)
