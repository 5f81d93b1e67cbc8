"""Saving a session in the browser, and the page with one's own images."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from backendai.base.wire.images import COMMIT
from backendai.base.wire.node_jobs import JobState, NodeJobReport
from backendai.base.wire.usage import HomeLook
from backendai.domain.accounts.models import ResourcePolicy
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.catalog.models import Image, ImageOnAgent
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ImageCommit
from backendai.domain.compute.services.images.commit_reports import commit_reported
from backendai.domain.compute.services.images.commits import start_commit
from tests.cast import Cast
from tests.factories import make_agent, make_running_session, make_session

pytestmark = pytest.mark.django_db
OWN = "/account/images/"


def signed_in(person: Any) -> Client:
    client = Client()
    client.force_login(person)
    return client


def make_own(cast: Cast, name: str) -> Image:
    agent = make_agent()
    session = make_running_session(cast.alice, agent)
    start_commit(cast.alice, session, name, now=timezone.now())
    commit = ImageCommit.objects.get(session=session)
    done = NodeJobReport(kind=COMMIT, job_id=commit.pk, state=JobState.DONE, result={"size_bytes": 5 * 2**20})
    commit_reported(agent, done, now=timezone.now())
    return Image.objects.get(pk=commit.pk)


def test_the_panel_offers_it_before_the_end_and_says_why_it_cannot_be_done(cast: Cast) -> None:
    session, waiting = make_running_session(cast.alice), make_session(cast.alice)
    batch = make_running_session(cast.alice, session_type="batch", startup_command="true")
    page = signed_in(cast.alice).get(f"/sessions/{session.pk}/")
    assert [action.key for action in page.context["actions"]] == [
        "apps",
        "terminal",
        "console",
        "files",
        "ssh",
        "log",
        "commit",
        "template",
        "share",
        "stop",
        "terminate",
    ]

    def obstacle(person: Any, about: Any) -> str:
        actions = signed_in(person).get(f"/sessions/{about.pk}/").context["actions"]
        return str(next(action.obstacle for action in actions if action.key == "commit"))

    assert obstacle(cast.alice, session) == ""
    assert obstacle(cast.alice, waiting) == "The session does not run yet."
    assert obstacle(cast.alice, batch) == "Only interactive sessions can be saved as an image."
    assert obstacle(cast.dana, session) == "Only its owner may save a session as an image."
    native = make_running_session(cast.alice, make_agent("native", backend="process"))
    said = obstacle(cast.alice, native)
    assert said.startswith("Agent native has no container engine") and "cannot be saved as images" in said
    poor = make_running_session(cast.alice, make_agent("poor", backend="vm", capabilities=["images"]))
    assert obstacle(cast.alice, poor).startswith("Agent poor cannot save sessions as images")
    page = signed_in(cast.alice).get(f"/sessions/{native.pk}/").content.decode()
    assert f'href="/sessions/{native.pk}/commit/"' not in page, "a button that cannot be pressed leads nowhere"


def test_the_form_works_with_and_without_scripts_and_shows_each_mistake_at_its_place(cast: Cast) -> None:
    cast.alice.policy = ResourcePolicy.objects.create(name="one", max_customized_images=1)
    cast.alice.save()
    session, alice = make_running_session(cast.alice), signed_in(cast.alice)
    address = f"/sessions/{session.pk}/commit/"
    page = alice.get(address).content.decode()
    assert "/home/work" in page and "You have 0 of 1 images of your own." in page
    wrong = alice.post(address, {"name": "a b c"})
    assert wrong.context["form"].errors["name"][0].startswith("A space is not allowed")
    script = {"HX-Request": "true"}
    assert "Use at least 4" in alice.post(address, {"name": "abc"}, headers=script).content.decode()
    assert not BackgroundJob.objects.exists()
    assert alice.post(address, {"name": "tools"}, headers=script).status_code == 204
    assert BackgroundJob.objects.get().owner == cast.alice
    page = alice.get(address).content.decode()
    assert "is being saved from this session" in page
    other = make_running_session(cast.alice)
    refused = alice.post(f"/sessions/{other.pk}/commit/", {"name": "more"})
    assert "may have at most 1" in str(refused.context["form"].non_field_errors())
    assert signed_in(cast.bob).post(address, {"name": "bobs"}).status_code == 404
    assert "Only its owner" in signed_in(cast.dana).post(address, {"name": "danas"}).content.decode()
    ended = alice.post(f"/sessions/{session.pk}/terminate/", follow=True)
    assert "tools is being created from this session" in ended.content.decode()


def test_the_page_lists_them_gives_other_names_and_asks_before_it_deletes(cast: Cast) -> None:
    alice = signed_in(cast.alice)
    assert "No image yet." in alice.get(OWN).content.decode()
    image = make_own(cast, "tools")
    page = alice.get(OWN).content.decode().replace("\N{NO-BREAK SPACE}", " ")
    assert "tools" in page and image.name in page and "5 MiB" in page and "not on any agent" not in page
    ImageOnAgent.objects.all().delete()
    assert "not on any agent" in alice.get(OWN).content.decode()
    assert "tools" not in signed_in(cast.bob).get(OWN).content.decode()

    rename, delete = f"{OWN}{image.pk}/rename/", f"{OWN}{image.pk}/delete/"
    assert alice.post(rename, {"name": "x"}).status_code == 422
    assert "other-tools" in alice.post(rename, {"name": "other-tools"}, follow=True).content.decode()

    user = make_session(cast.alice, image=image.name)
    assert f"/sessions/{user.pk}/" in alice.get(delete).content.decode()
    assert user.name in alice.post(delete, follow=True).content.decode()
    assert Image.objects.own_of(cast.alice).exists()
    alice.post(f"/sessions/{user.pk}/terminate/")
    assert "This cannot be undone." in alice.get(delete).content.decode()
    assert "other-tools is deleted." in alice.post(delete, follow=True).content.decode()
    assert not Image.objects.own_of(cast.alice).exists()
    assert alice.get(delete).status_code == 404


def test_administrators_see_whose_they_are_and_forget_them_as_their_owners_would(cast: Cast) -> None:
    image, dana = make_own(cast, "tools"), signed_in(cast.dana)
    page = dana.get("/manage/images/?is_customized=true").content.decode()
    assert image.name in page and cast.alice.email in page
    assert "It was created from a session" in dana.get(f"/manage/images/{image.pk}/forget/").content.decode()
    dana.post(f"/manage/images/{image.pk}/forget/", follow=True)
    image.refresh_from_db()
    assert image.deleted_at is not None
    assert image.name not in dana.get("/manage/images/").content.decode()


@contextmanager
def node_that_says(status: int, said: bytes) -> Iterator[tuple[str, list[str]]]:
    """A node's gateway with one answer, and what it was asked."""
    asked: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            assert self.headers["Authorization"].startswith("Ticket ")
            self.send_response(status)
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


def test_the_form_tells_what_of_the_home_folder_will_not_be_saved(cast: Cast) -> None:
    session = make_running_session(cast.alice)
    kernel = session.kernels.get()
    address = f"/sessions/{session.pk}/commit/left-out/"
    form = signed_in(cast.alice).get(f"/sessions/{session.pk}/commit/").content.decode()
    assert f'hx-get="{address}"' in form and "pip install" in form
    script = {"HX-Request": "true"}
    dialog = signed_in(cast.alice).get(f"/sessions/{session.pk}/commit/", headers=script).content.decode()
    assert 'hx-target="#session-box-body"' in dialog and f'hx-get="{address}"' in dialog
    assert 'hx-disinherit="hx-target hx-disabled-elt"' in dialog, "what comes later would take the place of the form"
    look = HomeLook(home_bytes=int(2.5 * 2**30), pip_bytes=143 * 2**20, packages=12, complete=True)

    def said(person: Any) -> Any:
        return signed_in(person).get(address)

    def text_for(person: Any) -> str:
        return str(said(person).content.decode().replace("\xa0", " "))

    with node_that_says(200, look.model_dump_json().encode()) as (url, asked):
        Agent.objects.filter(pk=kernel.agent_id).update(gateway_url=url)
        page = text_for(cast.alice)
        assert asked == [f"/kernels/{kernel.pk}/home"]
        assert "12 packages in <code>~/.local</code> (143 MiB) will not be saved." in page
        assert "Files in your home folder (2.5 GiB) will not be saved." in page
        assert said(cast.dana).status_code == 204, "she may see the session, and what is in it is its owner's"
        assert len(asked) == 1
    partly = look.model_copy(update={"pip_bytes": 0, "complete": False})
    with node_that_says(200, partly.model_dump_json().encode()) as (url, _):
        Agent.objects.filter(pk=kernel.agent_id).update(gateway_url=url)
        page = text_for(cast.alice)
        assert "packages in" not in page and "(at least 2.5 GiB)" in page
    for status, nonsense in ((404, b""), (200, b"{}"), (200, b"\xff" * 10_000)):
        with node_that_says(status, nonsense) as (url, _):
            Agent.objects.filter(pk=kernel.agent_id).update(gateway_url=url)
            assert said(cast.alice).status_code == 204
    assert said(cast.alice).status_code == 204, "the node is away"


def test_the_disk_of_a_running_session_is_used_of_limit_where_its_agent_measures_it(cast: Cast) -> None:
    session = make_running_session(cast.alice)
    kernel, address = session.kernels.get(), f"/sessions/{session.pk}/disk/"
    panel = signed_in(cast.alice).get(f"/sessions/{session.pk}/").content.decode()
    assert f'hx-get="{address}"' in panel and "not measured" in panel
    plain = HomeLook(home_bytes=0, pip_bytes=0, packages=0, complete=True)
    with node_that_says(200, plain.model_dump_json().encode()) as (url, _):
        Agent.objects.filter(pk=kernel.agent_id).update(gateway_url=url)
        assert signed_in(cast.alice).get(address).status_code == 204, "a folder without a disk of its own"
    full = plain.model_copy(update={"disk_used": 3 * 2**30, "disk_limit": 4 * 2**30})
    with node_that_says(200, full.model_dump_json().encode()) as (url, _):
        Agent.objects.filter(pk=kernel.agent_id).update(gateway_url=url)
        page = signed_in(cast.alice).get(address).content.decode().replace("\xa0", " ")
        assert "<strong>3 GiB</strong> of 4 GiB used" in page and 'value="75"' in page
        assert signed_in(cast.charlie).get(address).status_code == 404
