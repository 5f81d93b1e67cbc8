"""``check --deploy`` has nothing to say about the settings that the documents ask for, and names what is missing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

PRODUCTION = (
    "BACKENDAI_HTTPS",
    "BACKENDAI_ALLOWED_HOSTS",
    "BACKENDAI_TRUSTED_ORIGINS",
    "BACKENDAI_PROXIES",
    "BACKENDAI_PORTAL_URL",
    "BACKENDAI_APPS_DOMAIN",
)


def documented() -> dict[str, str]:
    text = Path(settings.BASE_DIR, ".env.example").read_text()
    found = dict(re.findall(r"^#(BACKENDAI_\w+)=(\S+)$", text, re.MULTILINE))
    return {name: found[name] for name in PRODUCTION}


def check_deploy(data: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=settings.BASE_DIR,
        env={"PATH": os.environ["PATH"], "BACKENDAI_DATA": str(data), **environment},
        capture_output=True,
        text=True,
    )


@pytest.mark.ci
def test_nothing_is_left_to_say_of_the_documented_settings(tmp_path: Path) -> None:
    done = check_deploy(tmp_path, documented())
    assert done.returncode == 0, done.stderr
    assert "no issues" in done.stdout


def test_a_portal_without_https_is_named(tmp_path: Path) -> None:
    done = check_deploy(tmp_path, {**documented(), "BACKENDAI_HTTPS": "0"})
    assert done.returncode == 1
    for each in ("portal.W001", "security.W004", "security.W012", "security.W016"):
        assert each in done.stderr


def test_parts_of_the_platform_are_answered_whatever_the_portal_is_called(tmp_path: Path) -> None:
    code = "from backendai.settings.portal import ALLOWED_HOSTS; print(*ALLOWED_HOSTS)"
    told = {"PATH": os.environ["PATH"], "BACKENDAI_DATA": str(tmp_path), **documented()}
    told["BACKENDAI_DOOR_URL"] = "http://web:8080"
    done = subprocess.run([sys.executable, "-c", code], cwd=settings.BASE_DIR, env=told, capture_output=True, text=True)
    assert done.stdout.split() == [told["BACKENDAI_ALLOWED_HOSTS"], "web", "127.0.0.1", "[::1]"]
