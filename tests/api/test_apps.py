"""The apps of a session for scripts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings as configured
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from backendai.domain.accounts.models import AccessToken
from backendai.domain.accounts.sign_in.credentials import Credential, user_by
from backendai.domain.activity.models import AuditEntry
from backendai.domain.cluster.app_domains import program_url
from backendai.domain.cluster.site import change_site
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.apps.of_session import CodeRefused, read_code
from tests.api.callers import SESSIONS, Caller
from tests.cast import Cast
from tests.factories import make_image, make_running_session

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(cast: Cast) -> ComputeSession:
    make_image(labels={"ai.backend.service-ports": "jupyterlab:http:[8888],ring:tcp:9000"})
    return make_running_session(cast.alice)


def test_it_lists_the_apps_with_where_they_live_and_why_not(
    cast: Cast, session: ComputeSession, django_assert_num_queries: object
) -> None:
    alice = Caller(cast.alice)
    alice.get(f"{SESSIONS}{session.pk}/apps/")
    # The token, the session, its kernel, the settings of the site and those of the apps.
    with django_assert_num_queries(5):  # type: ignore[operator]
        lab, ring = alice.get(f"{SESSIONS}{session.pk}/apps/").json()["results"]
    assert (lab["name"], lab["title"], lab["port"], lab["code"]) == ("jupyterlab", "JupyterLab", 8888, "")
    assert lab["url"].startswith(f"http://jupyterlab-{session.pk.hex[:12]}.apps.localhost")
    assert (ring["name"], ring["code"]) == ("ring", "not-for-browsers")
    below = f"http://127.0.0.1:{configured.APPS_PUBLIC_PORT}/apps/{session.pk}/jupyterlab"
    assert lab["program_url"] == below and lab["gateway_command"].endswith(f"jupyter lab --gateway-url={below}")
    assert "$BAI_TOKEN" in lab["gateway_command"] and "bai_" not in lab["gateway_command"]
    assert (ring["program_url"], ring["gateway_command"]) == ("", "")


@pytest.mark.parametrize(
    ("domain", "portal", "found"),
    [
        ("apps.localhost", "http://127.0.0.1:8080", "http://127.0.0.1:8081/v1"),
        ("apps.localhost", "http://[::1]:8080", "http://[::1]:8081/v1"),
        ("apps.example.org", "http://portal.example.org", "http://models.apps.example.org:8081"),
    ],
)
def test_programs_get_an_address_that_the_system_resolves(settings: Any, domain: str, portal: str, found: str) -> None:
    settings.APPS_PUBLIC_PORT, settings.PORTAL_URL = 8081, portal
    assert program_url(f"models.{domain}", "/v1") == found


def test_it_gives_a_code_that_ends_with_the_token(cast: Cast, session: ComputeSession) -> None:
    answer = Caller(cast.alice).post(f"{SESSIONS}{session.pk}/apps/jupyterlab/")
    assert (answer.status_code, answer.json()["expires_in"]) == (201, 30)
    assert answer.json()["url"].endswith("/.backendai/enter")
    assert answer["Cache-Control"] == "no-store"
    claims = read_code(answer.json()["code"], timezone.now())
    assert claims.portal == "testserver"
    assert user_by(claims.credential, timezone.now()) == cast.alice
    AccessToken.objects.all().delete()
    assert user_by(claims.credential, timezone.now()) is None


def test_it_refuses_with_a_reason(cast: Cast, session: ComputeSession) -> None:
    alice = Caller(cast.alice)
    assert alice.post(f"{SESSIONS}{session.pk}/apps/nothing/").status_code == 404
    answer = alice.post(f"{SESSIONS}{session.pk}/apps/ring/")
    assert (answer.status_code, answer.json()["code"]) == (409, "not-for-browsers")
    ComputeSession.objects.update(status="TERMINATING")
    answer = alice.post(f"{SESSIONS}{session.pk}/apps/jupyterlab/")
    assert (answer.status_code, answer.json()["code"]) == (409, "session-not-running")
    assert Caller(cast.charlie).post(f"{SESSIONS}{session.pk}/apps/jupyterlab/").status_code == 404


def test_nobody_reads_or_bends_a_code(cast: Cast, session: ComputeSession) -> None:
    code = Caller(cast.alice).post(f"{SESSIONS}{session.pk}/apps/jupyterlab/").json()["code"]
    assert str(cast.alice.pk) not in code
    for bent in (code[:-1], code.swapcase(), "é", ""):
        with pytest.raises(CodeRefused):
            read_code(bent, timezone.now())


@pytest.mark.parametrize("credential", [Credential(), Credential(login="nothing"), Credential(token="nothing")])
def test_nothing_is_nobodys_credential(credential: Credential) -> None:
    assert user_by(credential, timezone.now()) is None


def test_its_owner_opens_an_app_to_everybody_where_the_site_allows_it(cast: Cast, session: ComputeSession) -> None:
    alice, address = Caller(cast.alice), f"{SESSIONS}{session.pk}/apps/jupyterlab/public/"
    answer = alice.put(address)
    assert (answer.status_code, answer.json()["code"]) == (409, "no-public-apps")
    change_site(cast.dana, {"public_apps": True}, now=timezone.now())
    assert Caller(cast.bob).put(address).status_code == 404
    for _ in range(2):
        answer = alice.put(address)
        assert (answer.status_code, answer.json()["is_public"]) == (200, True)
    assert [one["is_public"] for one in alice.get(f"{SESSIONS}{session.pk}/apps/").json()["results"]] == [True, False]
    assert alice.put(f"{SESSIONS}{session.pk}/apps/ring/public/").json()["code"] == "not-for-browsers"
    assert alice.put(f"{SESSIONS}{session.pk}/apps/nothing/public/").status_code == 404
    for _ in range(2):
        assert alice.delete(address).status_code == 204
    assert [one["is_public"] for one in alice.get(f"{SESSIONS}{session.pk}/apps/").json()["results"]] == [False, False]
    actions = AuditEntry.objects.filter(action__startswith="app.").order_by("pk").values_list("action", flat=True)
    assert list(actions) == ["app.open-to-everybody", "app.open-to-everybody", "app.close-to-others"]


@pytest.mark.parametrize(
    ("body", "hours"),
    [({}, 24), ({"public_for": "1h"}, 1), ({"public_for": "1d"}, 24), ({"public_for": "session"}, None)],
)
def test_a_public_app_has_an_end(cast: Cast, session: ComputeSession, body: dict[str, str], hours: int | None) -> None:
    change_site(cast.dana, {"public_apps": True}, now=timezone.now())
    alice, address = Caller(cast.alice), f"{SESSIONS}{session.pk}/apps/jupyterlab/public/"
    alice.put(address, {"public_for": "session"})
    before = timezone.now()
    answer = alice.put(address, body).json()
    listed = alice.get(f"{SESSIONS}{session.pk}/apps/").json()["results"][0]
    assert answer["public_until"] == listed["public_until"] and answer["gives_shell"]
    told = AuditEntry.objects.filter(action="app.open-to-everybody").order_by("-pk")[0].details["until"]
    if hours is None:
        assert answer["public_until"] is None and told == "end of session"
    else:
        end = parse_datetime(answer["public_until"])
        assert end is not None and timedelta(0) <= end - before - timedelta(hours=hours) < timedelta(minutes=1)
        assert parse_datetime(told) == end


def test_a_length_that_there_is_not_is_refused(cast: Cast, session: ComputeSession) -> None:
    change_site(cast.dana, {"public_apps": True}, now=timezone.now())
    answer = Caller(cast.alice).put(f"{SESSIONS}{session.pk}/apps/jupyterlab/public/", {"public_for": "1y"})
    assert answer.status_code == 400 and not session.public_apps.exists()
