"""Keeping the home folder of a session, from its page and over REST."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse

from backendai.domain.accounts.models import User
from backendai.domain.compute.models import ComputeSession, HomeKeep
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.storage.models import Folder, StorageHost
from backendai.domain.storage.status import FolderStatus
from tests.cast import Cast
from tests.factories import make_running_session, make_session
from tests.pages import markup
from tests.storage.fake_file_server import FakeFileServer, make_host, serving
from tests.web.conftest import HTMX

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]


@pytest.fixture
def host(db: None) -> StorageHost:
    with serving(FakeFileServer()) as files:
        yield make_host(files)


def address(session: ComputeSession) -> str:
    return reverse("web:session_keep_home", args=[session.pk])


def test_the_owner_keeps_a_home_and_ends_the_session(host: StorageHost, cast: Cast, browse: Browse) -> None:
    session, client = make_running_session(cast.alice), browse(cast.alice)
    assert address(session) in markup(client.get(reverse("web:session", args=[session.pk])))
    assert address(session) in markup(client.get(reverse("web:terminate", args=[session.pk])))
    page = markup(client.get(address(session)))
    assert f'value="{session.name}-home"' in page and "Keep home folder" in page
    sent = {"name": "a b", "host": str(host.pk), "ends_session": "on"}
    wrong = markup(client.post(address(session), sent))
    assert "letters, digits" in wrong and not Folder.objects.exists()
    answer = client.post(address(session), sent | {"name": "kept"}, **HTMX)
    keep = HomeKeep.objects.get()
    assert answer.status_code == 204 and keep.ends_session and keep.session == session
    assert keep.folder.status == FolderStatus.CREATING and keep.folder.user == cast.alice
    page = markup(client.get(address(session)))
    assert "is being copied into" in page and "Keep home folder</button>" not in page
    page = markup(client.get(reverse("web:terminate", args=[session.pk])))
    assert "is being copied into kept." in page and "first</a>" not in page, "it is said before the button is pressed"
    page = markup(client.post(reverse("web:terminate", args=[session.pk]), follow=True))
    assert "is being copied into the folder" in page and "kept" in page


def test_a_session_that_does_not_run_says_why(host: StorageHost, cast: Cast, browse: Browse) -> None:
    session = make_session(cast.alice)
    page = markup(browse(cast.alice).get(address(session)))
    assert "Only the home folder of a running session can be kept." in page and "<form" in page
    assert "keep-home-link" not in markup(browse(cast.alice).get(reverse("web:session", args=[session.pk])))


def test_a_session_that_is_being_ended_says_so(host: StorageHost, cast: Cast, browse: Browse) -> None:
    session, client = make_running_session(cast.alice), browse(cast.alice)
    terminate_session(session, cast.alice)
    assert "is being ended: its home folder cannot be kept" in markup(client.get(address(session)))
    sent = client.post(address(session), {"name": "kept", "host": str(host.pk)}, **HTMX)
    assert sent.status_code == 200 and "cannot be kept any more" in markup(sent)
    assert not Folder.objects.exists()
    assert address(session) not in markup(client.get(reverse("web:session", args=[session.pk])))


def test_nobody_else_keeps_it(host: StorageHost, cast: Cast, browse: Browse) -> None:
    session = make_running_session(cast.alice)
    sent = {"name": "kept", "host": str(host.pk)}
    assert browse(cast.charlie).post(address(session), sent).status_code == 404
    assert "Only its owner may keep" in markup(browse(cast.dana).post(address(session), sent))
    assert not Folder.objects.exists()


def test_rest_keeps_a_home(host: StorageHost, cast: Cast, browse: Browse) -> None:
    session, client = make_running_session(cast.alice), browse(cast.alice)
    there = f"/api/v1/sessions/{session.pk}/keep-home/"
    made = client.post(there, {"name": "kept", "host": "local"}, content_type="application/json")
    assert (made.status_code, made.json()["status"], made.json()["name"]) == (202, "CREATING", "kept"), made.content
    again = client.post(there, {"name": "again"}, content_type="application/json")
    assert (again.status_code, again.json()["code"]) == (409, "home-being-kept")
    ended = client.post(f"/api/v1/sessions/{session.pk}/terminate/", {}, content_type="application/json")
    assert (ended.status_code, ended.json()["code"]) == (409, "home-being-kept")
