"""Templates over REST: create, publish, activate, render, launch."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import yaml

from backendai.domain.accounts.models import Domain, Membership, User
from backendai.domain.compute.models import ComputeSession
from backendai.domain.templates.models import Template, TemplateVersion
from tests.api.callers import SESSIONS, Caller
from tests.cast import Cast
from tests.factories import make_agent, make_image

pytestmark = pytest.mark.django_db
TEMPLATES = "/api/v1/templates/"
TEXT = """\
params:
  lr: {type: number, default: 0.1, title: Learning rate}  # tuned by hand
  hf_token: {type: secret}
image: python
type: batch
startup_command: python train.py --lr "$PARAM_LR"
resources: {cpu: 1, mem: 512m}
environ: {MODE: no, HF_TOKEN: "${{ params.hf_token }}"}
locked: [image]
"""


def created(caller: Caller, **said: Any) -> Any:
    answer = caller.post(TEMPLATES, {"name": "train", "text": TEXT} | said)
    assert answer.status_code == 201, answer.json()
    return answer.json()


def test_a_version_is_published_and_becomes_current_by_another_step(cast: Cast) -> None:
    alice = Caller(cast.alice)
    made = created(alice, title="Training", icon="cpu")
    assert (made["scope"], made["owner"], made["current"]) == ("private", "alice@example.com", 1)
    assert made["parameters"][0] | {"help": ""} == made["parameters"][0] and made["locked"] == ["image"]
    address = f"{TEMPLATES}{made['id']}/"
    assert alice.get(address, format="yaml").content.decode() == TEXT, "comments and all"
    newer = {"text": TEXT.replace("0.1", "0.2"), "note": "twice as fast"}
    assert alice.post(f"{address}versions/", newer).json()["number"] == 2
    assert alice.post(f"{address}versions/", newer).json()["code"] == "same-version"
    assert alice.get(address).json()["current"] == 1, "publishing alone changes nothing for launches"
    assert alice.post(f"{address}activate/", {"version": 2}).json()["current"] == 2
    assert alice.post(f"{address}activate/", {"version": 9}).json()["code"] == "unknown-template-version"
    rows = alice.get(f"{address}versions/").json()["results"]
    assert [(row["number"], row["note"], row["author"]) for row in rows] == [
        (2, "twice as fast", "alice@example.com"),
        (1, "", "alice@example.com"),
    ]
    assert "0.2" in alice.get(f"{address}versions/2/", format="yaml").content.decode()
    changed = alice.patch(address, {"deprecated": "use eval"}).json()
    assert (changed["deprecated"], changed["title"]) == ("use eval", "Training")
    assert alice.delete(address).status_code == 204 and not TemplateVersion.objects.exists()


def test_what_is_wrong_is_told_with_line_and_column(cast: Cast) -> None:
    alice = Caller(cast.alice)
    refused = alice.post(TEMPLATES, {"name": "train", "text": "image: python\nenvirn:\n  A: b\n"}).json()
    place = (refused["data"]["line"], refused["data"]["column"])
    assert (refused["code"], refused["field"], place) == ("unknown-field", "envirn", (2, 1))
    assert "use environ" in refused["detail"]
    assert alice.post(TEMPLATES, {"name": "train"}).json()["field"] == "text"
    assert alice.post(TEMPLATES, {"name": "no/slash", "text": TEXT}).json()["field"] == "name"
    created(alice)
    assert alice.post(TEMPLATES, {"name": "train", "document": {"image": "x"}}).json()["code"] == "name-taken"


def test_each_scope_has_its_publishers_and_readers(cast: Cast) -> None:
    alice, bob, charlie, dana = (Caller(one) for one in (cast.alice, cast.bob, cast.charlie, cast.dana))
    for scope in ("project", "domain", "public"):
        answer = alice.post(TEMPLATES, {"name": "train", "text": TEXT, "scope": scope, "project": "vision"})
        assert answer.status_code == 403, scope
    Membership.objects.filter(user=cast.alice, project=cast.project).update(role="admin")
    User.objects.filter(pk=cast.bob.pk).update(role="admin", domain=Domain.objects.get(name="default"))
    made = {
        "private": created(alice),
        "project": created(alice, scope="project", project="vision"),
        "domain": created(Caller(User.objects.get(pk=cast.bob.pk)), scope="domain"),
        "public": created(dana, scope="public"),
    }
    seen = {"alice": set(made), "charlie": {"public"}, "dana": set(made)}
    for caller, name in ((alice, "alice"), (charlie, "charlie"), (dana, "dana")):
        assert {row["scope"] for row in caller.get(TEMPLATES).json()["results"]} == seen[name]
    assert bob.get(f"{TEMPLATES}{made['private']['id']}/").status_code == 404
    for scope in ("domain", "public"):
        address = f"{TEMPLATES}{made[scope]['id']}/"
        assert alice.patch(address, {"title": "mine"}).status_code == 403
        assert alice.post(f"{address}versions/", {"text": "image: x"}).status_code == 403
        assert alice.post(f"{address}activate/", {"version": 1}).status_code == 403
        assert alice.delete(address).status_code == 403
    assert Template.objects.exclude(title="").count() == 0


def test_a_session_is_launched_from_it_and_remembers_its_version(cast: Cast) -> None:
    make_image()
    make_agent()
    alice = Caller(cast.alice)
    created(alice)
    said = {"template": "train", "parameters": {"lr": 0.5, "hf_token": "hf_'\"$(x)"}, "name": "night-1"}
    answer = alice.post(SESSIONS, said | {"environ": {"MODE": "yes", "MORE": "1"}})
    assert answer.status_code == 201, answer.json()
    session = ComputeSession.objects.get(pk=answer.json()["id"])
    assert session.environ == {
        "MODE": "yes",
        "MORE": "1",
        "HF_TOKEN": "hf_'\"$(x)",
        "PARAM_LR": "0.5",
        "PARAM_HF_TOKEN": "hf_'\"$(x)",
    }
    assert session.startup_command == 'python train.py --lr "$PARAM_LR"'
    assert (session.spec["template"], session.spec["parameters"]) == ("private/train@1", {"lr": 0.5})
    assert "hf_'" not in str(session.spec), "what is kept has no secret"
    body = alice.get(f"{SESSIONS}{session.pk}/").json()
    assert (body["template"], body["parameters"]) == ("private/train@1", {"lr": 0.5})


@pytest.mark.parametrize(
    ("said", "code", "field"),
    [
        ({"template": "nothing"}, "not-found", "template"),
        ({"template": "a b"}, "invalid-template", "template"),
        ({"template": "train@7"}, "not-found", "template"),
        ({"template": "train"}, "missing-parameter", "parameters.hf_token"),
        ({"template": "train", "parameters": {"lr": "x", "hf_token": "x"}}, "invalid-parameter", "parameters.lr"),
        ({"template": "train", "parameters": {"hf_token": "x"}, "image": "other"}, "locked-by-template", "image"),
        ({"template": "train", "parameters": {"hf_token": "x"}, "imge": "other"}, "invalid-request", "imge"),
        ({"template": "train", "parameters": []}, "missing-parameter", "parameters.hf_token"),
        ({"image": "python", "parameters": {"lr": 1}}, "invalid-request", "parameters"),
        ({"name": "without"}, "invalid-request", "image"),
    ],
)
def test_a_launch_that_does_not_fit_its_template_is_refused(
    cast: Cast, said: dict[str, Any], code: str, field: str
) -> None:
    make_image()
    make_agent()
    created(Caller(cast.alice))
    refused = Caller(cast.alice).post(SESSIONS, said).json()
    assert (refused["code"], refused.get("field")) == (code, field), refused
    assert not ComputeSession.objects.exists()


def test_the_nearest_scope_is_meant_and_nobody_takes_what_is_not_theirs(cast: Cast) -> None:
    make_image()
    make_agent()
    alice, bob, dana = Caller(cast.alice), Caller(cast.bob), Caller(cast.dana)
    secret = {"hf_token": "x"}
    created(alice)
    assert bob.post(SESSIONS, {"template": "train", "parameters": secret}).status_code == 404
    public = created(dana, scope="public", text=TEXT.replace("0.1", "0.9"))
    assert alice.post(SESSIONS, {"template": "train", "parameters": secret}).status_code == 201
    for caller, named in ((bob, "train"), (alice, "public/train@1"), (alice, public["id"])):
        assert caller.post(SESSIONS, {"template": named, "parameters": secret}).status_code == 201
    assert sorted(session.spec["template"] for session in ComputeSession.objects.all()) == [
        "private/train@1",
        "public/train@1",
        "public/train@1",
        "public/train@1",
    ]


def test_it_is_rendered_with_sources_and_previewed(cast: Cast) -> None:
    make_image()
    group = make_agent().resource_group
    group.session_defaults = {"environ": {"PROXY": "p", "MODE": "group"}, "shm": "128m"}
    group.save()
    alice = Caller(cast.alice)
    made = created(alice)
    answer = alice.post(f"{TEMPLATES}{made['id']}/render/", {"parameters": {"lr": 1}, "request": {"name": "night"}})
    body = answer.json()
    origins = {row["path"]: (row["origin"], row["name"]) for row in body["sources"]}
    assert (body["template"], body["document"]["environ"]["MODE"]) == ("private/train@1", "no")
    assert origins["environ.PROXY"] == origins["shm"] == ("group", group.name)
    assert origins["environ.MODE"] == ("template", "private/train@1") and origins["name"] == ("caller", "")
    assert body["document"]["environ"]["HF_TOKEN"] is None, "a secret is not needed to look at it"
    said = {"template": "train", "parameters": {"hf_token": "x"}}
    assert alice.post("/api/v1/session-preview/", said).status_code == 200


def test_lists_and_launches_take_a_fixed_number_of_queries(cast: Cast, django_assert_max_num_queries: Any) -> None:
    alice = Caller(cast.alice)
    for number in range(4):
        created(alice, name=f"train-{number}")
    with django_assert_max_num_queries(6):
        assert len(alice.get(TEMPLATES).json()["results"]) == 4


def test_a_change_answers_in_yaml_too(cast: Cast) -> None:
    alice = Caller(cast.alice)
    made = alice.post(TEMPLATES, {"name": "train", "document": {"image": "python"}}).json()
    answer = alice.patch(f"{TEMPLATES}{made['id']}/?format=yaml", {"title": "Training"})
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/yaml; charset=utf-8")
    assert yaml.safe_load(answer.content) == made | {"title": "Training", "updated_at": mock.ANY}
