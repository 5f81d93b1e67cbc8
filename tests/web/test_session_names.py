"""Session names: pages and REST accept and refuse the same ones, in the same words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils.html import escape

from backendai.domain.accounts.models import User
from backendai.domain.compute.models import ComputeSession, LaunchRecord
from tests.api.callers import LAUNCH, SESSIONS, Caller
from tests.cast import Cast
from tests.effort import some
from tests.factories import make_agent, make_image, make_session
from tests.web.conftest import HTMX

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
REFUSED = [
    ("z1", "Use at least 4 characters (2 given)."),
    ("abc", "Use at least 4 characters (3 given)."),
    ("x" * 65, "Use at most 64 characters (65 given)."),
    ("a b c d", "A space is not allowed: use letters a–z, digits, dot, dash and underscore."),
    ("-abc", "Begin with a letter or a digit."),
    ("abc-", "End with a letter or a digit."),
]


@pytest.fixture
def site(cast: Cast) -> Cast:
    """One image, one group, one agent."""
    make_image()
    make_agent()
    return cast


def typed(cast: Cast, name: str) -> dict[str, Any]:
    amounts = {"image": "python", "resource_group": "default", "preset": "", "cpu": "1", "mem": "512m"}
    return amounts | {"name": name, "session_type": "interactive", "project": str(cast.project.pk)}


@some(("name", "words"), REFUSED, 2)
def test_every_page_and_rest_refuse_a_name_in_the_same_words(site: Cast, browse: Browse, name: str, words: str) -> None:
    session = make_session(site.alice, name="keeps-this")
    record = LaunchRecord.objects.create(owner=site.alice, name="stays", parameters={})
    page, script = browse(site.alice), Caller(site.alice)
    recent = reverse("web:recent_change", args=[record.pk])
    pages = [
        page.post(reverse("web:launch"), typed(site, name)),
        page.post(reverse("web:session_rename", args=[session.pk]), {"name": name}, **HTMX),
        page.post(recent, {"action": "rename", "name": name}, **HTMX),
    ]
    answers = [
        script.post(SESSIONS, LAUNCH | {"name": name}),
        script.post(f"{SESSIONS}{session.pk}/rename/", {"name": name}),
        script.patch(f"/api/v1/me/recent-launches/{record.pk}/", {"name": name}),
    ]
    assert [str(escape(words)) in each.content.decode() for each in pages] == [True] * 3
    assert [(each.json()["code"], each.json()["field"]) for each in answers] == [("invalid-name", "name")] * 3
    assert [each.json()["detail"] for each in answers] == [words] * 3
    assert list(ComputeSession.objects.values_list("name", flat=True)) == ["keeps-this"]


@pytest.mark.parametrize("name", ["z123", "x" * 64, "A.b_c-9"])
def test_every_page_and_rest_accept_the_same_names(site: Cast, browse: Browse, name: str) -> None:
    page, script = browse(site.alice), Caller(site.bob)
    assert page.post(reverse("web:launch"), typed(site, name)).status_code == 302
    assert script.post(SESSIONS, LAUNCH | {"name": name}).status_code == 201
    other, record = make_session(site.charlie), LaunchRecord.objects.create(owner=site.charlie, parameters={})
    page, script = browse(site.charlie), Caller(site.charlie)
    assert page.post(reverse("web:session_rename", args=[other.pk]), {"name": name}, **HTMX).status_code == 204
    assert script.patch(f"/api/v1/me/recent-launches/{record.pk}/", {"name": name}).json()["name"] == name
