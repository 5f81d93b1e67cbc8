"""What a build learns from the machine's own package settings, and what it must not learn."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.builder.site_config import AptSource, read_apt_sources, write_secrets

STANZAS = """# comment
Types: deb
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
 bookworm-backports
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: https://third.example/apt
Suites: bookworm
Components: main
Signed-By: /usr/share/keyrings/third.gpg
"""
LINES = """deb cdrom:[disc]/ bookworm main
deb-src http://mirror.example/debian bookworm main
deb [arch=amd64 trusted=yes] http://local.example/debian bookworm main contrib # near
deb http://mirror.example/debian trixie main
"""


@pytest.fixture
def apt_folder(tmp_path: Path) -> Path:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text(LINES)
    (tmp_path / "sources.list.d" / "debian.sources").write_text(STANZAS)
    return tmp_path


def test_it_keeps_only_the_distributions_own_sources_of_the_suite(apt_folder: Path) -> None:
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    assert read_apt_sources("bookworm", apt_folder) == [
        AptSource(("http://local.example/debian",), ("bookworm",), ("main", "contrib"), trusted=True),
        AptSource(("http://mirror.example/debian",), ("bookworm", "bookworm-updates"), ("main",), keyring),
    ]


def test_it_finds_nothing_on_a_machine_of_another_kind(tmp_path: Path) -> None:
    assert read_apt_sources("", tmp_path) == []


def test_it_gives_pip_the_index_but_no_folder_of_this_machine(tmp_path: Path) -> None:
    environ = {
        "HOME": str(tmp_path),
        "PIP_INDEX_URL": "https://pip.example/simple",
        "PIP_EXTRA_INDEX_URL": "file:///srv/wheels https://more.example/simple",
        "SSL_CERT_FILE": str(_write(tmp_path / "ca.crt", "certificates")),
    }
    secrets = write_secrets(tmp_path, [], environ)
    text = secrets["pip-conf"].read_text()
    assert "index-url = https://pip.example/simple\n" in text
    assert "extra-index-url = https://more.example/simple\n" in text
    assert "file://" not in text
    assert "cert = /run/secrets/ca\n" in text
    assert secrets["ca"] == tmp_path / "ca.crt"


def test_it_writes_package_sources_that_apt_can_read_back(tmp_path: Path, apt_folder: Path) -> None:
    sources = read_apt_sources("bookworm", apt_folder)
    written = write_secrets(tmp_path, sources, {"HOME": str(tmp_path)})["apt-sources"]
    again = tmp_path / "again"
    (again / "sources.list.d").mkdir(parents=True)
    _write(again / "sources.list.d" / "site.sources", written.read_text())
    assert read_apt_sources("bookworm", again) == sources


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
