"""The launch form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from backendai.accounts.models import User
from backendai.catalog.models import ResourcePreset
from backendai.compute.models import ComputeSession
from backendai.core.slots import Slots
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_image, make_session

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]


@pytest.fixture
def site(cast: Cast) -> Cast:
    """One image, one group, one agent with a GPU."""
    make_image()
    capacity = Slots.parse({"cpu": 8, "mem": "16g", "cuda.device": 2}).to_json()
    make_agent(capacity=capacity)
    return cast


def typed(cast: Cast, **over: Any) -> dict[str, Any]:
    values = {
        "image": "python",
        "name": "try-one",
        "session_type": "interactive",
        "project": str(cast.project.pk),
        "resource_group": "default",
        "preset": "",
        "cpu": "2",
        "mem": "1g",
    }
    return values | over


def test_it_starts_what_was_typed_and_shows_its_page(site: Cast, browse: Browse) -> None:
    answer = browse(site.alice).post(reverse("web:launch"), typed(site, **{"slot.cuda.device": "1"}))
    session = ComputeSession.objects.get()
    assert answer["Location"] == reverse("web:session", args=[session.pk]) + "#terminal"
    assert (session.name, session.owner) == ("try-one", site.alice)
    assert session.slots == {"cpu": "2", "mem": str(2**30), "cuda.device": "1"}


def test_it_takes_the_presets_numbers_instead_of_those_typed(site: Cast, browse: Browse) -> None:
    preset = ResourcePreset.objects.create(name="medium", slots={"cpu": 4, "mem": "2g"})
    browse(site.alice).post(reverse("web:launch"), typed(site, preset=str(preset.pk), cpu="1"))
    assert ComputeSession.objects.get().slots == {"cpu": "4", "mem": str(2 * 2**30)}


def test_it_makes_one_session_of_a_form_that_is_sent_twice(site: Cast, browse: Browse) -> None:
    client = browse(site.alice)
    key = client.get(reverse("web:launch")).context["form"]["request_key"].value()
    for _ in range(2):
        assert client.post(reverse("web:launch"), typed(site, request_key=key)).status_code == 302
    assert ComputeSession.objects.count() == 1


def test_it_keeps_a_command_only_for_batch(site: Cast, browse: Browse) -> None:
    client = browse(site.alice)
    client.post(reverse("web:launch"), typed(site, startup_command="left over"))
    job = typed(site, name="job", session_type="batch", startup_command="echo hi")
    assert client.post(reverse("web:launch"), job)["Location"].endswith("#log")
    commands = dict(ComputeSession.objects.values_list("name", "startup_command"))
    assert commands == {"try-one": "", "job": "echo hi"}


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"name": "a b"}, "name", "not allowed"),
        ({"name": "taken"}, "name", "already have a session named"),
        ({"session_type": "batch"}, "startup_command", "needs a command"),
        ({"cpu": "many"}, "cpu", "not a number"),
        ({"cpu": "99"}, "cpu", "no agent of default has more than 8"),
        ({"mem": "1m"}, "mem", "at least"),
        ({"slot.cuda.device": "9"}, "slot.cuda.device", "9 asked"),
        ({"image": "unheard-of"}, "image", "valid choice"),
    ],
)
def test_it_shows_a_refusal_at_its_field_and_keeps_what_was_typed(
    site: Cast, browse: Browse, change: dict[str, str], field: str, words: str
) -> None:
    make_session(site.alice, name="taken")
    answer = browse(site.alice).post(reverse("web:launch"), typed(site, **change))
    assert answer.status_code == 422
    assert words in str(answer.context["form"].errors[field])
    assert ComputeSession.objects.count() == 1
    if field == "cpu":
        assert f'value="{change["cpu"]}"' in answer.content.decode()


def test_it_offers_only_projects_and_groups_that_are_open_to_one(site: Cast, browse: Browse) -> None:
    make_group("secret", is_public=False)
    form = browse(site.charlie).get(reverse("web:launch")).context["form"]
    assert [each.name for each in form.fields["project"].queryset] == ["other"]
    assert "secret" not in [each.name for each in form.fields["resource_group"].queryset]
    answer = browse(site.charlie).post(reverse("web:launch"), typed(site))
    assert "project" in answer.context["form"].errors


def test_it_tells_somebody_without_a_project_what_is_missing(site: Cast, browse: Browse) -> None:
    site.bob.memberships.all().delete()
    client = browse(site.bob)
    assert client.get(reverse("web:launch")).status_code == 200
    answer = client.post(reverse("web:launch"), typed(site, project=""))
    assert answer.status_code == 422
    assert "project" in answer.content.decode()


def test_it_offers_custom_beside_the_presets_and_chooses_it_at_first(site: Cast, browse: Browse) -> None:
    ResourcePreset.objects.create(name="medium", slots={"cpu": 4, "mem": "2g"})
    page = browse(site.alice).get(reverse("web:launch")).content.decode()
    assert '<input type="radio" name="preset" value="" id="preset-custom" checked>' in page
