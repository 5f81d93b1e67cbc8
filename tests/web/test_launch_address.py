"""The launch form in its address."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from backendai.domain.accounts.models import User
from backendai.domain.catalog.models import ResourcePreset
from backendai.domain.compute.spec import RoleSpec
from backendai.portal.web.launch.field_table import LAUNCH_FIELDS
from backendai.portal.web.launch.fields.roles_field import PARTS
from backendai.portal.web.launch.form import LaunchForm
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_image, make_session

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
NOTICE = "This form was filled from a link"


@pytest.fixture
def site(cast: Cast) -> Cast:
    """Two images, two groups, a preset."""
    make_agent(capacity={"cpu": "8", "mem": str(2**34), "cuda.device": "2"}, group=make_group("lab"))
    make_agent()
    make_image("other")
    make_image()
    ResourcePreset.objects.create(name="small", slots={"cpu": 1, "mem": "1g"})
    return cast


def opened(client: Client, asked: Any) -> tuple[Any, str]:
    answer = client.get(reverse("web:launch"), asked)
    assert answer.status_code == 200
    return answer.context["form"], answer.content.decode()


def test_it_fills_the_form_from_its_address_and_looks_at_it_at_once(site: Cast, browse: Browse) -> None:
    asked = {
        "image": "python",
        "resource_group": "lab",
        "cpu": "3",
        "slot.cuda.device": "1",
        "session_type": "batch",
        "startup_command": "make <all>",
        "preopen_ports": "8080",
        "name": "-wrong",
    }
    form, page = opened(browse(site.alice), asked | {"environ.name": ["A", "B"], "environ.value": ["1", "2"]})
    assert {name: form[name].value() for name in asked} == asked
    assert form["preset"].value() == "", "amounts of one's own"
    assert [row[:2] for row in form.variable_rows()[:2]] == [("A", "1"), ("B", "2")]
    assert "Begin with a letter" in page
    assert 'data-wrong="1"' in page
    assert NOTICE in page
    assert "make &lt;all&gt;" in page
    assert 'data-step="1"' in page


def test_a_command_that_the_address_lacks_is_no_error_before_the_review(site: Cast, browse: Browse) -> None:
    for step, told in ((1, 0), (5, 1)):
        _form, page = opened(browse(site.alice), {"session_type": "batch", "step": str(step)})
        assert page.count('id="id_startup_command_error"') == told
        assert page.count("Cannot be launched") == told


def test_it_says_nothing_of_links_where_nothing_would_run(site: Cast, browse: Browse) -> None:
    for asked in ({}, {"step": "3"}, {"name": "fine", "cpu": "2"}, {"startup_command": ""}):
        form, page = opened(browse(site.alice), asked)
        assert NOTICE not in page
        assert form.is_bound == bool(asked.keys() - {"step"})
        assert f'data-step="{asked.get("step", 1)}"' in page


def test_what_must_not_come_from_an_address_does_not(site: Cast, browse: Browse) -> None:
    model = make_session(site.alice, environ={"API_TOKEN": "s3cret", "MODE": "slow"})
    asked = {"request_key": "mine", "owner": "bob@example.com", "time_zone": "Asia/Seoul", "name": "fine"}
    form, _page = opened(browse(site.alice), asked)
    assert form["request_key"].value() not in ("mine", "")
    assert not form["owner"].value()
    assert not form["time_zone"].value()
    variables = {"environ.name": ["API_TOKEN", "MODE"], "environ.value": ["", "fast"]}
    form, page = opened(browse(site.alice), {"like": str(model.pk)} | variables)
    assert dict(row[:2] for row in form.variable_rows()[:2]) == {"API_TOKEN": "s3cret", "MODE": "fast"}, (
        "of one's own session"
    )
    form, page = opened(browse(site.bob), {"like": str(model.pk)} | variables)
    assert "s3cret" not in page
    assert "Values that look secret are not kept in the address: enter API_TOKEN again." in page


def test_it_tells_the_script_what_is_usual_and_no_secret_of_the_page(site: Cast, browse: Browse) -> None:
    _form, page = opened(browse(site.alice), {"preset": "", "cpu": "5", "name": "other-than-usual"})
    found = re.search(r'data-usual="([^"]*)"', page)
    assert found
    usual = json.loads(unescape(found[1]))
    assert usual["preset"] == ["small"]
    assert usual["session_type"] == ["interactive"]
    assert usual["cpu"] == ["1"]
    assert "name" not in usual
    assert not {"request_key", "owner", "csrfmiddlewaretoken"} & usual.keys()
    answer = browse(site.alice).post(reverse("web:launch"), {"image": "python", "name": "-"})
    assert answer.context["usual"] == json.dumps(usual), "also after a refusal"


def test_a_start_time_in_the_address_is_a_moment_for_everybody(site: Cast, browse: Browse) -> None:
    asked = {"session_type": "batch", "startup_command": "true", "starts_at": "2999-01-30T23:30:00.000Z"}
    form, page = opened(browse(site.alice), asked)
    assert form.cleaned_data["starts_at"].isoformat() == "2999-01-30T23:30:00+00:00"
    assert 'data-wrong=""' in page


def test_roles_of_an_address_are_whole_rows_also_where_their_cells_are_empty(site: Cast, browse: Browse) -> None:
    said = {"roles.name": ["worker", "third"], "roles.count": ["2"], "roles.image": ["", "other"]}
    form, _page = opened(browse(site.alice), said)
    rows = [[row.typed[part] for part in ("name", "count", "image", "cpu")] for row in form.role_rows()[:-1]]
    assert rows == [["worker", "2", "", ""], ["third", "", "other", ""]]
    model = make_session(site.alice, roles={"worker": RoleSpec(count=2)})
    form, _page = opened(browse(site.alice), {"like": str(model.pk)} | {f"roles.{part}": [""] for part in PARTS})
    assert [row.typed for row in form.role_rows()] == [{}], "all were removed"


def test_each_field_of_the_form_stands_in_the_table() -> None:
    assert LAUNCH_FIELDS.keys() - {"__all__"} == LaunchForm.base_fields.keys()
