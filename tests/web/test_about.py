"""The page *About*: version, licence, other people's work, and what there is to read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone
from django.utils.html import escape

from backendai.base.core.version import VERSION
from backendai.domain.accounts.models import User
from backendai.domain.cluster.models import PassLease
from backendai.portal.loops.loops import PASS_LEASE
from backendai.portal.web.frame.build import build_text
from tests.cast import Cast

Browse = Callable[[User], Client]
ROOT = Path(settings.BASE_DIR)
pytestmark = pytest.mark.django_db


def test_it_shows_version_licence_and_documents(
    cast: Cast, browse: Browse, django_assert_num_queries: Callable[..., Any]
) -> None:
    client = browse(cast.alice)
    assert 'href="/about/"' in client.get("/dashboard/").content.decode(), "it is in the menu"
    with django_assert_num_queries(2):  # for who asks
        text = client.get("/about/").content.decode()
    assert build_text().startswith(VERSION) and f"{build_text()} <button" in " ".join(text.split())
    assert escape((ROOT / "NOTICE").read_text()) in text and escape((ROOT / "LICENSE").read_text()) in text
    assert "<h2>[Unreleased]</h2>" in text and "<h2>Reporting a vulnerability</h2>" in text
    for address in ("/api/schema/", "/api/docs/", "/help/user-guide/"):
        assert f'href="{address}"' in text and client.get(address).status_code == 200
    assert "/help/security/" not in text, "she may not read that guide"
    assert 'href="/help/security/"' in browse(cast.dana).get("/about/").content.decode()


def test_an_installation_without_the_texts_still_shows_the_version(
    cast: Cast, browse: Browse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "BASE_DIR", tmp_path)
    monkeypatch.setattr("backendai.portal.web.guides.documents.FOLDER", tmp_path / "docs")
    answer = browse(cast.alice).get("/about/")
    assert answer.status_code == 200
    assert VERSION in answer.content.decode() and "<details id=" not in answer.content.decode()


def test_its_files_are_in_the_image_of_the_platform() -> None:
    copied = (ROOT / "Dockerfile").read_text()
    allowed = (ROOT / ".dockerignore").read_text().split()
    for name in ("LICENSE", "NOTICE", "CHANGELOG.md", "SECURITY.md"):
        assert f" {name} " in copied and f"!{name}" in allowed


def test_readiness_tells_the_version() -> None:
    PassLease.objects.update_or_create(pk=PASS_LEASE, defaults={"until": timezone.now(), "finished_at": timezone.now()})
    assert Client().get("/readyz").json()["version"] == VERSION
