"""The portal serves the command for people's own computers as a wheel, made of the files beside the platform."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.test import Client

from backendai.domain.accounts.models import User
from backendai.portal.web.account import command
from tests.cast import Cast

pytestmark = pytest.mark.django_db
PROJECT = """\
[project]
name = "bai"
dynamic = ["version"]
description = "A command."
requires-python = ">=3.9"
dependencies = ["requests>=2; python_version < '4'"]
scripts = { bai = "bai.main:main" }
[tool.hatch.version]
path = "bai/__init__.py"
pattern = 'VERSION = "(?P<version>.+)"'
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small package in place of the real one."""
    (tmp_path / "bai" / "__pycache__").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "bai" / "__init__.py").write_text('VERSION = "1.2.3"\n')
    (tmp_path / "bai" / "main.py").write_text("def main() -> None:\n    print('it works')\n")
    (tmp_path / "bai" / "__pycache__" / "main.pyc").write_bytes(b"old")
    monkeypatch.setattr(command, "FOLDER", tmp_path)
    yield tmp_path
    command.wheel_of.cache_clear()


def install(wheel: bytes, name: str, where: Path) -> Path:
    """Install a wheel with pip, without what it needs; return where it is then."""
    where.mkdir()
    (where / name).write_bytes(wheel)
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", str(where / "to")]
    done = subprocess.run([*pip, str(where / name)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return where / "to"


def test_pip_installs_what_the_first_line_names(folder: Path, tmp_path: Path) -> None:
    answer = Client().get("/cli/")
    assert answer["Content-Type"].startswith("text/plain")
    assert answer.content.decode().splitlines() == [
        "pip install http://testserver/cli/bai-1.2.3-py3-none-any.whl",
        "bai login http://testserver/",
    ]
    name = "bai-1.2.3-py3-none-any.whl"
    there = install(Client().get(f"/cli/{name}").content, name, tmp_path / "computer")
    assert (there / "bai" / "main.py").read_bytes() == (folder / "bai" / "main.py").read_bytes()
    assert not (there / "bai" / "__pycache__" / "main.pyc").exists()
    metadata = (there / "bai-1.2.3.dist-info" / "METADATA").read_text()
    assert "Requires-Dist: requests>=2; python_version < '4'\n" in metadata
    assert subprocess.run([there / "bin" / "bai"], env={"PYTHONPATH": str(there)}, capture_output=True).stdout == (
        b"it works\n"
    )


def test_the_same_files_give_the_same_bytes_which_are_sent_once(folder: Path) -> None:
    path = "/cli/bai-1.2.3-py3-none-any.whl"
    first = Client().get(path)
    command.wheel_of.cache_clear()
    (folder / "bai" / "main.py").touch()
    assert Client().get(path).content == first.content
    assert Client().get(path, headers={"If-None-Match": first["ETag"]}).status_code == 304
    command.wheel_of.cache_clear()
    (folder / "bai" / "main.py").write_text("def main() -> None: ...\n")
    assert Client().get(path, headers={"If-None-Match": first["ETag"]}).status_code == 200


@pytest.mark.parametrize("name", ["bai-1.2.2-py3-none-any.whl", "pyproject.toml", "..%2Fpyproject.toml"])
def test_it_serves_nothing_else(folder: Path, name: str) -> None:
    assert Client().get(f"/cli/{name}").status_code == 404


def test_the_page_of_tokens_leads_there_where_there_is_a_command(
    cast: Cast, browse: Callable[[User], Client], folder: Path
) -> None:
    assert 'href="/cli/"' in browse(cast.alice).get("/account/tokens/").content.decode()
    (folder / "pyproject.toml").unlink()
    command.wheel_of.cache_clear()
    assert 'href="/cli/"' not in browse(cast.alice).get("/account/tokens/").content.decode()
    assert Client().get("/cli/").status_code == Client().get("/cli/bai-1.2.3-py3-none-any.whl").status_code == 404


@pytest.mark.skipif(command.wheel_of(command.FOLDER) is None, reason="this copy of the platform has no command")
def test_the_real_command_is_installed_from_what_is_served(tmp_path: Path) -> None:
    wheel = command.wheel_of(command.FOLDER)
    assert wheel is not None
    served = Client().get(f"/cli/{wheel.name}").content
    assert (install(served, wheel.name, tmp_path / "computer") / "bai" / "__init__.py").is_file()
