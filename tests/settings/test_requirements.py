"""The pinned packages of the tests hold all that the platform itself needs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.conf import settings

_PIN = re.compile(r"^([A-Za-z0-9_.-]+)(?:\[[^\]]*\])?==(\S+)", re.MULTILINE)


def pins(name: str) -> dict[str, str]:
    text = Path(settings.BASE_DIR, name).read_text()
    return {found.group(1).lower(): found.group(2) for found in _PIN.finditer(text)}


def test_a_test_run_installs_what_the_platform_runs_with() -> None:
    assert pins("requirements.txt").items() <= pins("requirements-dev.txt").items()
    assert pins("requirements-telemetry.txt").items() <= pins("requirements-dev.txt").items()
    assert pins("requirements.in").items() <= pins("requirements.txt").items()


@pytest.mark.parametrize(
    "name", ["requirements.txt", "requirements-dev.txt", "requirements-telemetry.txt", "requirements-installer.txt"]
)
def test_every_pin_has_the_hashes_of_its_files(name: str) -> None:
    for text in _PIN.split(Path(settings.BASE_DIR, name).read_text())[3::3]:
        assert "--hash=sha256:" in text
    assert pins(name)
