"""Labels and notes in the browser: launched with, shown, changed, and found by."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from backendai.domain.accounts.models import Preference, ResourcePolicy, User
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.life.ending import terminate_session
from tests.cast import Cast
from tests.factories import make_agent, make_image, make_session
from tests.pages import markup
from tests.web.conftest import HTMX
from tests.web.test_launch_form import typed

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
HOME = "/"


@pytest.fixture
def site(cast: Cast) -> Cast:
    make_image()
    make_agent()
    return cast


def test_the_form_launches_with_them_and_shows_them_in_the_review(site: Cast, browse: Browse) -> None:
    client, sent = browse(site.alice), typed(site, labels="team = vision\r\nexperiment=lr sweep", note="Try 1\r\nagain")
    review = markup(client.post(reverse("web:launch_review"), sent))
    assert "<bdi>experiment=lr sweep</bdi>" in review
    assert "Try 1<br>again" in review
    client.post(reverse("web:launch"), sent)
    session = ComputeSession.objects.get()
    assert (session.labels, session.note) == ({"experiment": "lr sweep", "team": "vision"}, "Try 1\nagain")
    again = markup(client.get(reverse("web:launch"), {"like": session.pk}))
    assert re.search(r'<textarea name="labels"[^>]*>\s*experiment=lr sweep\s+team=vision</textarea>', again)
    assert re.search(r'<textarea name="note"[^>]*>\s*Try 1\s+again</textarea>', again)


def test_the_form_says_what_is_wrong_with_a_label_and_which_a_policy_requires(site: Cast, browse: Browse) -> None:
    client = browse(site.alice)
    page = markup(client.post(reverse("web:launch"), typed(site, labels="a=1\nTeam=x", note="x" * 501)))
    assert "is not a label: use 1 to 63" in page
    assert "Use at most 500 characters (501 given)." in page
    policy = ResourcePolicy.objects.create(name="strict", required_labels=["team"])
    User.objects.filter(pk=site.alice.pk).update(policy=policy)
    for name in ("launch", "launch_preview", "launch_review"):
        page = markup(client.post(reverse(f"web:{name}"), typed(site)))
        assert "Add the labels that a policy requires: " in page, name
    assert not ComputeSession.objects.exists()


def test_the_panel_shows_them_and_its_dialog_changes_them_also_after_the_end(site: Cast, browse: Browse) -> None:
    session, client = make_session(site.alice, labels={"team": "<vision>"}, note="<b>\nnext"), browse(site.alice)
    page, dialog = (reverse(f"web:{name}", args=[session.pk]) for name in ("session", "session_labels"))
    shown = markup(client.get(page))
    assert f'href="{HOME}?label=team%3D%3Cvision%3E"><bdi>team=&lt;vision&gt;</bdi></a>' in shown
    assert "&lt;b&gt;<br>next" in shown
    assert "team=&lt;vision&gt;</textarea>" in markup(client.get(dialog))
    terminate_session(session, site.alice)
    assert "Line 1: write key=value" in markup(client.post(dialog, {"labels": "nonsense"}, **HTMX))
    assert client.post(dialog, {"labels": "phase=2", "note": ""}, **HTMX).status_code == 204
    assert client.post(dialog, {"labels": "phase=3", "note": "done"})["Location"] == page
    session.refresh_from_db()
    assert (session.labels, session.note) == ({"phase": "3"}, "done")
    assert f'href="{HOME}?view=finished&amp;label=phase%3D3"' in markup(client.get(page))
    assert browse(site.bob).post(dialog, {"labels": ""}).status_code == 404
    assert browse(site.dana).post(dialog, {"labels": ""}, **HTMX).status_code == 204


def test_a_label_that_a_policy_requires_is_not_removed_in_the_dialog(site: Cast, browse: Browse) -> None:
    session = make_session(site.alice, labels={"team": "vision"})
    policy = ResourcePolicy.objects.create(name="strict", required_labels=["team"])
    User.objects.filter(pk=site.alice.pk).update(policy=policy)
    address = reverse("web:session_labels", args=[session.pk])
    assert "that a policy requires: " in markup(browse(site.alice).post(address, {"labels": ""}, **HTMX))


def test_the_list_finds_them_by_search_filter_and_chips_in_a_fixed_number_of_queries(
    site: Cast, browse: Browse, django_assert_num_queries: Callable[..., Any]
) -> None:
    client = browse(site.dana)
    for name, labels in (("first", {"team": "a b", "phase": "1"}), ("second", {"team": "c"}), ("third", {})):
        make_session(site.alice, name=name, labels=labels)

    def names(**query: Any) -> list[str]:
        return sorted(each.name for each in client.get(HOME, query).context["page"])

    assert names(q="label:team") == ["first", "second"] == names(label="team")
    assert names(q="sec label:team=c") == ["second"]
    assert names(label=["team=a b", "phase"]) == ["first"]
    assert names(label=["team=a b", "phase=2"]) == [] == names(label="No such")
    page = markup(client.get(HOME, {"label": ["team=a b", "phase"]}))
    assert "Label: <bdi>team=a b</bdi>" in page and "Label: <bdi>phase</bdi>" in page
    assert '<input type="hidden" name="label" value="team=a b">' in page and 'value="phase"' in page
    assert "team=a b</bdi></a>" not in page, "the column is off at first"
    Preference.objects.create(user=site.dana, name="session-list.columns", value=["labels"])
    assert f'href="{HOME}?label=team%3Da+b"><bdi>team=a b</bdi></a>' in markup(client.get(HOME))
    file = b"".join(client.get(HOME, {"export": "csv", "label": "team=a b"})).decode("utf-8-sig")
    assert [row["labels"] for row in csv.DictReader(io.StringIO(file))] == ["phase=1\nteam=a b"]
    with django_assert_num_queries(16):  # for any number of sessions and labels
        client.get(HOME, {"label": ["team", "phase"], "q": "label:team"})
