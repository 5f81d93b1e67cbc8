"""How far the making of the Python environment of native sessions is."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from images.builder import native
from images.builder.progress import Progress
from tests.patience import until


def test_the_share_grows_while_pip_installs_without_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_LOOK_SECONDS", 0.01)
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    _install(packages, "pip")  # which every environment has
    said = io.StringIO()
    progress = Progress(said, machine=True)
    progress.plan(native._PHASES)
    progress.begin("packages", "downloading Python packages")
    with native._Installation(tmp_path, progress) as installation:
        for _ in range(2000):
            installation.hear("Collecting another")
        installation.hear("Installing collected packages: one, two")
        assert said.getvalue().splitlines()[-1] == "progress 0.40 installation: installing Python packages"
        _install(packages, "one")
        until(lambda: "progress 0.65 " in said.getvalue(), 30.0, "half of the installation is done")
        _install(packages, "two")
        until(lambda: "progress 0.90 " in said.getvalue(), 30.0, "all of it is done")


def _install(packages: Path, name: str) -> None:
    told = packages / f"{name}-1.0.dist-info"
    told.mkdir(parents=True)
    (told / "INSTALLER").write_text("pip\n")
