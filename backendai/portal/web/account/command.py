"""Serves the command ``bai`` for people's own computers: how to install it, and its wheel."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import tomllib
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import etag, require_safe

from backendai.base.paths.installation import FILES

FOLDER = FILES / "cli"
_WHEEL = "Wheel-Version: 1.0\nGenerator: backendai\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_HEADERS = {"description": "Summary", "requires-python": "Requires-Python", "license": "License-Expression"}
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # else the same files would give other bytes at another time
_INSTALL = "pip install {wheel}\nbai login {portal}\n"


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel: its file name, its bytes, and their digest."""

    name: str
    content: bytes
    digest: str


@cache
def wheel_of(folder: Path) -> Wheel | None:
    """Return the wheel of the pure package that ``pyproject.toml`` in a folder describes; None without one."""
    try:
        document = tomllib.loads((folder / "pyproject.toml").read_text())
    except FileNotFoundError:
        return None
    project, named = document["project"], document["tool"]["hatch"]["version"]
    name, version = project["name"], re.findall(named["pattern"], (folder / named["path"]).read_text())[0]
    info = f"{name}-{version}.dist-info"
    code = [path for path in sorted((folder / name).rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in code}
    scripts = [f"{script} = {target}" for script, target in project.get("scripts", {}).items()]
    files[f"{info}/METADATA"] = _metadata(project, version).encode()
    files[f"{info}/WHEEL"] = _WHEEL.encode()
    files[f"{info}/entry_points.txt"] = "\n".join(["[console_scripts]", *scripts, ""]).encode()
    record = f"{info}/RECORD"
    files[record] = "".join([*(_row(*file) for file in files.items()), f"{record},,\n"]).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            member = zipfile.ZipInfo(path, _LONG_AGO)
            member.external_attr, member.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            archive.writestr(member, content)
    content = packed.getvalue()
    return Wheel(f"{name}-{version}-py3-none-any.whl", content, hashlib.sha256(content).hexdigest())


def _metadata(project: dict[str, Any], version: str) -> str:
    lines = ["Metadata-Version: 2.4", f"Name: {project['name']}", f"Version: {version}"]
    lines += [f"{header}: {project[key]}" for key, header in _HEADERS.items() if isinstance(project.get(key), str)]
    lines += [f"Requires-Dist: {needed}" for needed in project.get("dependencies", [])]
    return "\n".join([*lines, ""])


def _row(path: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    return f"{path},sha256={digest},{len(content)}\n"


def has_command() -> bool:
    """Return whether this copy of the platform has the command."""
    return wheel_of(FOLDER) is not None


@require_safe
def install_lines(request: HttpRequest) -> HttpResponse:
    """Return as text how to install the command and to sign in with it. Raises Http404 where there is none."""
    portal = request.build_absolute_uri("/")
    wheel = request.build_absolute_uri(reverse("web:command_wheel", args=[_wheel().name]))
    return HttpResponse(_INSTALL.format(wheel=wheel, portal=portal), content_type="text/plain; charset=utf-8")


@require_safe
@etag(lambda request, wheel: f'"{_wheel(wheel).digest}"')
def command_wheel(request: HttpRequest, wheel: str) -> HttpResponse:
    """Return the wheel. Raises Http404 for another name, as of an older version."""
    return HttpResponse(_wheel(wheel).content, content_type="application/zip")


def _wheel(name: str | None = None) -> Wheel:
    wheel = wheel_of(FOLDER)
    if wheel is None or name not in (None, wheel.name):
        raise Http404
    return wheel
