"""The search of every page: what it finds for whom, and what it costs."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse
from pytest_django import DjangoAssertNumQueries

from backendai.domain.accounts.models import User
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.status import Status
from tests.cast import Cast
from tests.factories import make_agent, make_image, make_running_session, make_session
from tests.pages import markup
from tests.web.conftest import HTMX

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]


def hits(client: Client, text: str) -> list[tuple[str, str]]:
    """Return the title and the address of each hit."""
    page = markup(client.get(reverse("web:search"), {"q": text}, **HTMX))
    found = re.findall(r'<a class="search-hit" href="([^"]+)">.*?<bdi>(.*?)</bdi>', page, re.DOTALL)
    return [(title, href) for href, title in found]


def test_it_finds_sessions_pages_images_and_help(cast: Cast, browse: Browse) -> None:
    image = make_image()
    session = make_session(cast.alice, name="train-vision")
    client = browse(cast.alice)
    page = reverse("web:session", args=[session.pk])
    assert ("train-vision", page) in hits(client, "VISION")
    assert ("The wall", reverse("web:wall")) in hits(client, "wall")
    launch = f"{reverse('web:launch')}?image={image.name}"
    assert (f"Launch {image.title or image.name}", launch) in hits(client, f"launch {image.name}")
    assert ("Terminate train-vision", page) in hits(client, "terminate train")
    assert any(href.startswith("/help/") for _, href in hits(client, "template"))


def test_stop_leads_to_the_stop_which_keeps_the_files(cast: Cast, browse: Browse) -> None:
    runs, waits = make_running_session(cast.alice, name="one-runs"), make_session(cast.alice, name="one-waits")
    client = browse(cast.alice)
    stops = hits(client, "stop one")
    assert ("Stop one-runs", reverse("web:session_stop", args=[runs.pk])) in stops
    assert not [title for title, _ in stops if title.startswith("Terminate") or waits.name in title]
    ComputeSession.objects.filter(pk=runs.pk).update(status=Status.STOPPED)
    assert ("Resume one-runs", reverse("web:session", args=[runs.pk])) in hits(client, "resume one")


def test_nobody_finds_what_they_may_not_see(cast: Cast, browse: Browse) -> None:
    make_session(cast.bob, name="of-bob")
    make_agent("hidden-1")
    client = browse(cast.alice)
    for text in ("of-bob", "terminate of-bob", "hidden-1", cast.bob.email):
        assert [href for _, href in hits(client, text) if "view=finished" not in href] == []
    for text, title in (("hidden-1", "hidden-1"), (cast.bob.email, cast.bob.display_name)):
        assert title in [title for title, _ in hits(browse(cast.dana), text)]


def test_what_is_typed_is_bounded_and_comes_out_as_text(cast: Cast, browse: Browse) -> None:
    page = markup(browse(cast.alice).get(reverse("web:search"), {"q": "<script>" + "x" * 5000}, **HTMX))
    assert "<script>xxx" not in page
    assert "x" * 101 not in page


def test_it_asks_the_database_as_often_for_much_as_for_little(
    cast: Cast, browse: Browse, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(20):
        make_session(cast.alice, name=f"one-{number}")
        make_agent(f"one-{number}")
    client = browse(cast.dana)
    with django_assert_max_num_queries(13):
        found = hits(client, "one-")
    assert sum(title.startswith("one-") for title, _ in found) == 12
    assert any("view=finished" in href for _, href in found)


def test_it_is_a_page_without_scripts(cast: Cast, browse: Browse) -> None:
    page = markup(browse(cast.alice).get(reverse("web:search")))
    assert 'action="/search/"' in page
    assert "A name, a page or a word" in page
