"""Environments and their versions, as the launcher offers them."""

from __future__ import annotations

from typing import Any

import pytest

from backendai.catalog.models import Image
from backendai.web.launcher.environments import Environment, offer_for
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_image

pytestmark = pytest.mark.django_db
ROOT = "cr.example.org/stable/"


def image(tag: str, repository: str = "tensorflow", **over: Any) -> Image:
    values = {"reference": f"{ROOT}{repository}:{tag}", "architecture": "x86_64"}
    return make_image(f"{repository}-{tag}", **(values | over))


def offered(cast: Cast, who: str = "alice", group: str = "default") -> dict[str, Environment]:
    offer = offer_for(getattr(cast, who), project=str(cast.project.pk), group=group)
    return {each.title: each for each in offer.environments}


def test_images_of_one_repository_are_versions_of_one_environment_newest_first(cast: Cast) -> None:
    labels = {"ai.backend.base-distro": "ubuntu22.04"}
    for tag in ("2.9-py39", "2.15-py312-cuda12.3", "2.10-py310"):
        image(tag, labels=labels)
    image("1.0", "pytorch", title="PyTorch")
    found = offered(cast)
    versions = found["tensorflow"].versions
    assert [version.name for version in versions] == ["2.15", "2.10", "2.9"]
    assert versions[0].badges == ("ubuntu22.04", "x86_64", "py312", "cuda12.3")
    assert versions[0].text == "2.15 · ubuntu22.04 · x86_64 · py312 · cuda12.3"
    assert "cuda12.3" in found["tensorflow"].words
    assert list(found) == ["PyTorch", "tensorflow"]


def test_few_environments_of_one_version_each_are_plain_cards(cast: Cast) -> None:
    for number in range(6):
        image("latest", f"env-{number}")
    offer = offer_for(cast.alice, project="", group="")
    assert offer.is_plain
    assert not offer.has_many
    image("1.0", "env-0")
    assert not offer_for(cast.alice, project="", group="").is_plain
    image("latest", "env-7")
    assert offer_for(cast.alice, project="", group="").has_many


def test_it_says_why_one_cannot_be_chosen_here_and_puts_it_last(cast: Cast, django_assert_num_queries: Any) -> None:
    make_agent(architecture="aarch64")
    make_group("empty")
    image("3.0", architecture="x86_64")
    image("2.0", architecture="aarch64")
    image("1.0", "alone")
    elsewhere = image("1.0", "elsewhere", architecture="aarch64")
    elsewhere.domains.add(cast.elsewhere.domain)
    with django_assert_num_queries(4):
        found = offered(cast, "dana")
    assert [version.name for version in found["tensorflow"].versions] == ["2.0", "3.0"]
    assert found["tensorflow"].obstacle == ""
    assert found["tensorflow"].versions[1].obstacle == "It needs x86_64; resource group default has aarch64."
    assert found["elsewhere-1.0"].obstacle == "Not open to project vision."
    assert next(iter(found)) == "tensorflow", "what can be chosen comes first"
    assert offer_for(cast.dana, project=str(cast.project.pk), group="default").first == Image.objects.get(
        name="tensorflow-2.0"
    )
    nothing_known = offered(cast, "dana", group="empty")
    assert nothing_known["alone-1.0"].obstacle == "", "an empty group may get any agent"


def test_it_offers_only_what_its_owner_may_use_and_people_start(cast: Cast) -> None:
    image("1.0", "off", is_enabled=False)
    image("1.0", "system", labels={"ai.backend.role": "SYSTEM"})
    image("1.0", "private", labels={"ai.backend.features": "batch private"})
    image("1.0", "theirs").domains.add(cast.elsewhere.domain)
    own = {"labels": {"ai.backend.customized-image.name": "mine"}, "is_customized": True, "owner": cast.alice}
    image("2.0-customized_1234", **own)
    image("2.0")
    found = offered(cast)
    assert list(found) == ["tensorflow"]
    assert [version.badges for version in found["tensorflow"].versions] == [
        ("x86_64",),
        ("Customizedmine", "x86_64"),
    ]
    assert len(offered(cast, "bob")["tensorflow-2.0"].versions) == 1


def test_environments_of_one_name_say_where_they_come_from(cast: Cast) -> None:
    image("1.0", "env", title="Same")
    image("1.0", "lab/env", title="Same")
    assert set(offered(cast)) == {f"Same ({ROOT}env)", f"Same ({ROOT}lab/env)"}
