"""The installed package, without any sight of the clone: its files, its pages and a session."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from urllib.parse import urljoin

import pytest
import requests

from tests.patience import patient
from tests.system.bare import Person, Start, make_empty_tables, programs_without
from tests.system.platform import ROOT

pytestmark = [pytest.mark.ci, pytest.mark.system]
_CARRIED = (
    ".env.example",
    "templates/base.html",
    "static/css/theme.css",
    "static/js/",
    "locale/ko/LC_MESSAGES/django.mo",
    "docs/user-guide.md",
    "LICENSE",
    "images/python/Dockerfile",
    "bin/build-images",
    "bin/build-native",
    "requirements.txt",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this working tree."""
    folder = tmp_path_factory.mktemp("wheel")
    _run(sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "--wheel-dir", str(folder))
    (made,) = folder.glob("backendai_portal-*.whl")
    return made


@pytest.fixture(scope="module")
def home(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an environment that has the wheel beside the packages of the tests."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv" / "bin" / "python"
    told = _run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    Path(told, "others.pth").write_text(sysconfig.get_path("purelib"))
    _run(sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", str(wheel))
    return folder


def test_the_wheel_carries_what_the_running_platform_reads(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    missing = [path for path in _CARRIED if not any(name.startswith(f"backendai/_platform/{path}") for name in names)]
    assert not missing
    assert not [name for name in names if name.startswith("tests/") or "__pycache__" in name]


def test_it_starts_elsewhere_and_writes_only_its_data(home: Path) -> None:
    before = _contents(home / "venv")
    programs_without(home / "programs", ["docker", "dockerd", "containerd", "runc"])
    (home / "var").mkdir(mode=0o700)
    make_empty_tables(ROOT, home / "var")
    command = (str(home / "venv/bin/backendai"), "up", "--data", "var", "--backend", "process")
    with Start(home, Person(None), path=home / "programs", has_docker=False, up=command) as start:
        _look_at_pages(start)
        session = start.client.wait_until_running(start.client.launch(image=start.image)["id"])
        start.answer_in_terminal(session["id"])
        start.client.end(session["id"])
        told = start.environment | {"BACKENDAI_DATA": str(home / "var")}
        token = [str(home / "venv/bin/backendai"), "create_token", "admin@example.com"]
        done = subprocess.run(token, env=told, cwd=home, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert _contents(home / "venv") == before
    assert {path.name for path in home.iterdir()} == {"venv", "programs", "var"}


def _look_at_pages(start: Start) -> None:
    with start.browser() as browser:
        door = requests.get(f"{start.url}/login/", headers={"Accept-Language": "ko"}, timeout=patient(15))
        assert "로그인" in door.text
        sheets = re.findall(r'<link rel="stylesheet" href="([^"]+)"', door.text)
        assert sheets
        for sheet in sheets:
            assert requests.get(urljoin(start.url, sheet), timeout=patient(15)).ok
        guide = browser.get(f"{start.url}/help/", timeout=patient(30))
        assert guide.ok and "<h2" in guide.text
        picture = browser.get(f"{start.url}/help/pictures/launch.png", timeout=patient(15))
        assert picture.headers["Content-Type"] == "image/png"


def _contents(folder: Path) -> dict[str, float]:
    """Return when each file was written, without what Python compiles."""
    found = [path for path in folder.rglob("*") if "__pycache__" not in path.parts]
    return {str(path): path.lstat().st_mtime for path in found if not path.is_dir()}


def _run(*command: str) -> str:
    done = subprocess.run(command, cwd="/", capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
