"""The OpenAPI document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.conf import settings
from django.core.management import call_command
from django.test import Client
from drf_spectacular.generators import SchemaGenerator

from backendai.domain.accounts.rates import TooFast
from backendai.portal.api.frame import authentication, documents
from tests.cast import Cast


def test_the_committed_one_is_what_the_code_says_without_warnings(tmp_path: Path) -> None:
    call_command("spectacular", validate=True, fail_on_warn=True, file=str(tmp_path / "schema.yml"))
    text = (tmp_path / "schema.yml").read_text()
    for path in ("/api/v1/sessions/:", "/terminate/:", "/logs/:", "Idempotency-Key", "scheme: bearer"):
        assert path in text
    is_same = text == (settings.BASE_DIR / "docs" / "openapi.yaml").read_text()
    assert is_same, "Write it again: manage.py spectacular --file docs/openapi.yaml"


@pytest.mark.django_db
def test_strangers_are_counted_by_their_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(address: str, **_: Any) -> None:
        assert address == "127.0.0.1"
        raise TooFast(7)

    monkeypatch.setattr(authentication, "check_stranger_rate", refuse)
    answer = Client().get("/api/schema/")
    assert (answer.status_code, answer["Retry-After"]) == (429, "7")


@pytest.mark.django_db
def test_it_is_public_and_its_pages_are_for_people_who_are_signed_in(cast: Cast) -> None:
    client = Client()
    assert client.get("/api/schema/").status_code == 200
    assert client.get("/api/docs/")["Location"].startswith("/login/")
    client.force_login(cast.alice)
    page = client.get("/api/docs/")
    assert page.status_code == 200
    assert "<script>" not in page.content.decode(), "the content security policy would stop it"
    script = client.get("/api/docs/?script=")
    assert script["Content-Type"].startswith("application/javascript")


@pytest.mark.django_db
def test_it_is_made_once_for_each_format_and_language(cast: Cast) -> None:
    client = Client()
    client.force_login(cast.alice)
    with (
        mock.patch.dict(documents._made, clear=True),
        mock.patch.object(
            SchemaGenerator, "get_schema", autospec=True, side_effect=lambda *_, **__: {"openapi": "3"}
        ) as made,
    ):
        for query in ("", "?lang=ko", "?lang=none", "?format=json", "?format=json&lang=xx", "", "?version=9"):
            answer = client.get(f"/api/schema/{query}")
            assert answer.status_code == 200 and answer["Content-Disposition"].startswith("inline; filename=")
        assert made.call_count == len(documents._made) == 3
        assert json.loads(client.get("/api/schema/", headers={"Accept": "application/json"}).content) == {
            "openapi": "3"
        }
