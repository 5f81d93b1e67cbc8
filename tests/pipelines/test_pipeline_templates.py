"""Pipelines as templates: published, started in the browser and over REST, and made of a run."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.domain.accounts.models import Membership, Project
from backendai.domain.pipelines.models import Run
from backendai.domain.templates.models import Template
from backendai.domain.templates.services.publishing import (
    TemplateDraft,
    activate_version,
    create_template,
    publish_version,
)
from backendai.portal.loops.loops import run_pipelines
from tests.api.callers import Caller
from tests.cast import Cast
from tests.factories import make_group, make_image
from tests.pipelines.world import pending

pytestmark = pytest.mark.django_db
TEXT = """\
kind: pipeline
params:
  lr: {type: number, max: 1, title: Learning rate}
  size: {type: size, default: 512m}
  token: {type: secret}
defaults: {image: python, resources: {cpu: 1, mem: "${{ params.size }}"}}
steps:
  train: {startup_command: 'train "$PARAM_LR"'}
  report: {after: [train], startup_command: report}
"""


@pytest.fixture
def alice(cast: Cast) -> Client:
    make_group()
    make_image()
    client = Client()
    client.force_login(cast.alice)
    return client


def published(cast: Cast, text: str = TEXT, name: str = "flow") -> Template:
    return create_template(cast.alice, TemplateDraft(name), text, now=timezone.now())


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("after: [train]", "after: [trein]", 9, "use train"),
        ("params.size", "params.seize", 6, "size"),
        ("startup_command: report", "startup_command: report, environ: {API_KEY: abc123}", 9, "looks like a secret"),
        ("kind: pipeline", "kind: pipelines", 1, "session, pipeline"),
        ("kind: pipeline", "kind: session", 6, "no key .defaults"),
    ],
)
def test_a_document_of_which_no_run_can_be_made_is_refused(
    cast: Cast, old: str, new: str, line: int, says: str
) -> None:
    with pytest.raises(UserError) as caught:
        published(cast, TEXT.replace(old, new))
    assert re.search(says, caught.value.message) and caught.value.details["line"] == line, caught.value.message


def test_a_run_is_started_from_a_template_in_the_browser(alice: Client, cast: Cast) -> None:
    template = published(cast)
    assert "Pipeline" in alice.get("/templates/").content.decode()
    page = alice.get(f"/templates/{template.pk}/start/", follow=True)
    assert page.redirect_chain == [(f"/templates/{template.pk}/run/", 302)]
    assert "Learning rate" in page.content.decode() and 'type="password"' in page.content.decode()
    address, answers = f"/templates/{template.pk}/run/", {"version": "1", "p.lr": "0.5", "p.size": "1g"}
    assert alice.post(address, answers).context["asked"].errors.keys() == {"p.token"}
    answers |= {"p.token": "s3cret", "name": "nightly"}
    assert b"2 sessions" in alice.post(address, answers | {"go": "check"}).content and not Run.objects.exists()
    publish_version(cast.alice, template, TEXT.replace("report: {", "other: {"), now=timezone.now())
    activate_version(cast.alice, template, 2, now=timezone.now())
    assert alice.post(address, answers).status_code == 302
    run = Run.objects.get()
    assert (run.name, run.template, run.parameters) == ("nightly", "private/flow@1", {"lr": 0.5, "size": "1g"})
    run_pipelines(timezone.now())
    (session,) = pending(run)
    assert session.environ["PARAM_TOKEN"] == "s3cret" and session.slots["mem"] == str(2**30)
    assert "from template private/flow@1" in alice.get(f"/runs/{run.pk}/").content.decode()
    assert alice.post(address, answers | {"name": "x"}).context["form"].errors.keys() == {"name"}


def test_the_template_of_the_page_is_started_and_no_other_of_its_name(alice: Client, cast: Cast) -> None:
    text = "kind: pipeline\nsteps:\n  one: {image: python, resources: {cpu: 1, mem: 512m}, startup_command: %s}\n"
    second = Project.objects.create(domain=cast.project.domain, name="second")
    Membership.objects.create(user=cast.alice, project=second)
    both = [
        create_template(cast.dana, TemplateDraft("flow", "project", one.name), text % one.name, now=timezone.now())
        for one in (cast.project, second)
    ]
    assert [alice.post(f"/templates/{one.pk}/run/", {"version": "1"}).status_code for one in both] == [302, 302]
    assert ["vision" in run.text for run in Run.objects.order_by("created_at")] == [True, False]


def test_a_run_is_started_from_a_template_over_rest(alice: Client, cast: Cast) -> None:
    caller = Caller(cast.alice)
    made = caller.post("/api/v1/templates/", {"name": "flow", "text": TEXT}).json()
    assert made["kind"] == "pipeline" and [one["name"] for one in made["parameters"]] == ["lr", "size", "token"]
    body = {"template": "flow", "parameters": {"lr": 0.1, "token": "x"}}
    run = caller.post("/api/v1/runs/", body).json()
    assert (run["template"], run["size"], run["parameters"]["lr"]) == ("private/flow@1", 2, 0.1)
    assert caller.post("/api/v1/runs/", body | {"text": TEXT}).status_code == 400
    refused = caller.post("/api/v1/runs/", body | {"parameters": {"lr": 7, "token": "x"}}).json()
    assert refused["field"] == "parameters.lr", refused
    assert caller.post("/api/v1/sessions/", {"template": "flow"}).json()["code"] == "other-kind"
    caller.post("/api/v1/templates/", {"name": "single", "text": "image: python\n"})
    assert caller.post("/api/v1/runs/", {"template": "single"}).json()["code"] == "other-kind"
    assert caller.post("/api/v1/runs/", {"template": "gone"}).status_code == 404
    assert Caller(cast.bob).post("/api/v1/runs/", {"template": f"{made['id']}"}).status_code == 404


def test_the_versions_of_a_template_are_of_one_kind(cast: Cast) -> None:
    with pytest.raises(UserError) as caught:
        publish_version(cast.alice, published(cast), "image: python\n", now=timezone.now())
    assert caught.value.code == "other-kind"


def test_a_run_is_saved_as_a_template_that_starts_the_same(alice: Client, cast: Cast) -> None:
    text = TEXT.replace("startup_command: report", "startup_command: report, environ: {API_KEY: abc123}")
    body = {"text": text, "parameters": {"lr": 0.1, "token": "x"}}
    run = Caller(cast.alice).post("/api/v1/runs/", body).json()
    link = f"/templates/new/?run={run['id']}"
    assert link in alice.get(f"/runs/{run['id']}/").content.decode()
    form = alice.get(link).context["form"]
    assert "abc123" not in form["text"].value()
    sent = {"name": "again", "place": "private/", "icon": "stack-2", "text": form["text"].value()}
    assert alice.post("/templates/new/", sent).status_code == 302
    asked = {"lr": 0.2, "token": "x", "api_key": "abc123"}
    again = Caller(cast.alice).post("/api/v1/runs/", {"template": "again", "parameters": asked}).json()
    assert [one["name"] for one in again["steps"]] == ["train", "report"]
    client = Client()
    client.force_login(cast.bob)
    assert "train" not in client.get(link).context["form"]["text"].value(), "a run of somebody else"
