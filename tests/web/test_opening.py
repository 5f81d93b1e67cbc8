"""Opening an app as soon as a launched session runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from backendai.domain.accounts.models import User
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.life.ending import terminate_session
from tests.cast import Cast
from tests.effort import some
from tests.factories import make_agent, make_image, make_running_session, make_session
from tests.pages import markup
from tests.web.conftest import HTMX

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
KEY = "0123456789abcdef"


@pytest.fixture
def site(cast: Cast) -> Cast:
    make_image("lab", labels={"ai.backend.service-ports": "jupyterlab:http:8888"})
    make_agent(cpu=4)
    return cast


def address(looks: int = 0) -> str:
    return reverse("web:opening", args=[KEY, "jupyterlab"]) + (f"?looks={looks}" if looks else "")


def typed(cast: Cast, **over: Any) -> dict[str, Any]:
    values = {"image": "lab", "name": "my-lab", "project": str(cast.project.pk), "resource_group": "default"}
    asked = {"session_type": "interactive", "preset": "", "cpu": "1", "mem": "1g", "request_key": KEY}
    return values | asked | {"open_app": "jupyterlab"} | over


def keyed(session: ComputeSession, key: str = KEY, **over: Any) -> ComputeSession:
    """Return the session as one that the form has launched under this key."""
    ComputeSession.objects.filter(pk=session.pk).update(idempotency_key=key, **over)
    return session


def test_only_an_environment_with_the_app_offers_it(site: Cast, browse: Browse) -> None:
    make_image("plain", reference="local/plain:1")
    page = markup(browse(site.alice).get(reverse("web:launch")))
    assert re.findall(r'data-opens="(\w*)" type="radio" name="image" value="(\w+)"', page) == [
        ("jupyterlab", "lab"),
        ("", "plain"),
    ]
    assert "Open JupyterLab when ready" in page


@some(
    ("change", "waits"),
    [
        ({}, True),
        ({"tab_opened": "yes"}, False),
        ({"open_app": ""}, False),
        ({"open_app": "anything"}, False),
        ({"request_key": "a/b"}, False),
        ({"count": "2"}, False),
        ({"image": "plain"}, False),
        ({"session_type": "batch", "startup_command": "true"}, False),
    ],
)
def test_without_a_tab_of_its_own_the_launch_leads_to_the_page_that_waits(
    site: Cast, browse: Browse, change: dict[str, str], waits: bool
) -> None:
    make_image("plain", reference="local/plain:1")
    answer = browse(site.alice).post(reverse("web:launch"), typed(site, **change))
    assert answer.status_code == 302
    assert (answer["Location"] == address()) is waits


def test_it_waits_for_the_session_says_why_and_goes_on(site: Cast, browse: Browse) -> None:
    client = browse(site.alice)
    before = markup(client.get(address()))
    assert "Launching" in before and f'hx-get="{address(1)}"' in before
    session = keyed(make_running_session(site.alice))
    keyed(make_session(site.alice, name="waits"), "other", status_message="No agent has room.")
    waiting = markup(client.get(reverse("web:opening", args=["other", "jupyterlab"]), **HTMX))
    assert "No agent has room." in waiting and "looks=1" in waiting and "data-forward" not in waiting
    running = markup(client.get(address(3), **HTMX))
    assert f'data-forward href="{reverse("web:app", args=[session.pk, "jupyterlab"])}"' in running
    assert "hx-get" not in running
    terminate_session(session, site.alice)
    ended = markup(client.get(address(4), **HTMX))
    assert "hx-get" not in ended and "data-forward" not in ended and f"?like={session.pk}" in ended


def test_it_gives_up_when_no_session_comes_and_shows_nobody_elses(site: Cast, browse: Browse) -> None:
    keyed(make_running_session(site.alice))
    for person in (site.bob, site.dana):
        client = browse(person)
        assert "my-lab" not in markup(client.get(address(), **HTMX))
        lost = markup(client.get(address(30), **HTMX))
        assert "No session was launched." in lost and "hx-get" not in lost
    assert browse(site.alice).get(reverse("web:opening", args=["a b", "jupyterlab"])).status_code == 404


def test_a_refused_launch_tells_the_tab_that_waits(site: Cast, browse: Browse) -> None:
    client = browse(site.alice)
    refused = markup(client.post(reverse("web:launch") + "?step=1", typed(site, name="-")))
    assert 'data-refused="yes"' in refused and 'data-step="5"' in refused, "what is wrong is told by the review"
    assert "data-refused" not in markup(client.get(reverse("web:launch")))
