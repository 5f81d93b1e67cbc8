"""Where a clone and an installed package have their own files and their data."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest
from django.conf import settings

from backendai.base.core.errors import UserError
from backendai.base.core.version import VERSION
from backendai.base.paths import installation
from backendai.portal.web.guides import documents

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is installed, and nobody names a data folder."""
    monkeypatch.setattr(installation, "IS_CLONE", False)
    for name in ("BACKENDAI_DATA", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)


def test_a_clone_has_its_data_and_settings_in_itself() -> None:
    assert installation.FILES == ROOT
    assert installation.data_folder({}) == ROOT / "var"
    assert installation.dotenv_folder({"BACKENDAI_DATA": "/srv/data"}) == ROOT


@pytest.mark.usefixtures("installed")
def test_an_installed_package_has_them_with_its_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert installation.data_folder({}) == tmp_path / ".local/share/backendai"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    assert installation.data_folder({}) == tmp_path / "share/backendai"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert installation.data_folder({}) == Path("/var/lib/backendai")
    assert installation.dotenv_folder({"BACKENDAI_DATA": "/srv/data"}) == Path("/srv/data")


@pytest.mark.usefixtures("installed")
def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Path:
        raise RuntimeError

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(Path, "home", none)
    with pytest.raises(UserError, match="set BACKENDAI_DATA"):
        installation.usual_data()


def test_the_package_carries_every_file_that_the_running_platform_reads() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    carried = build["force-include"]
    read = [*settings.TEMPLATES[0]["DIRS"], *settings.STATICFILES_DIRS, *settings.LOCALE_PATHS, documents.FOLDER]
    others = (".env.example", "bin/build-images", "bin/build-native", "images", "requirements.txt")
    of_command = ("cli/bai", "cli/pyproject.toml")
    of_about = ("CHANGELOG.md", "LICENSE", "NOTICE", "SECURITY.md")
    read += [ROOT / name for name in (*others, *of_command, *of_about)]
    assert set(carried) == {path.relative_to(ROOT).as_posix() for path in read}
    assert all(carried[name] == f"backendai/_platform/{name}" and (ROOT / name).exists() for name in carried)


def test_the_version_is_one_that_packages_can_have() -> None:
    assert VERSION.count(".") == 2 and VERSION.replace(".", "").isdigit()
