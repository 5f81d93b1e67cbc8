"""Environments and their versions, as the launcher offers them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from backendai.domain.accounts.models import User
from backendai.domain.catalog.models import Image, ImageOnAgent
from backendai.domain.catalog.services import seed_images
from backendai.domain.cluster.models import Agent
from backendai.domain.cluster.site import change_site
from backendai.domain.compute.models import ComputeSession
from backendai.portal.web.launch.fields.environments import Environment, offer_for
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_image
from tests.pages import markup

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
LAUNCH, RENEWED = "/sessions/new/", "/sessions/new/environments/"
ROOT = "cr.example.org/stable/"


def image(tag: str, repository: str = "tensorflow", **over: Any) -> Image:
    values = {"reference": f"{ROOT}{repository}:{tag}", "architecture": "x86_64"}
    return make_image(f"{repository}-{tag}", **(values | over))


def offered(cast: Cast, who: str = "alice", group: str = "default") -> dict[str, Environment]:
    offer = offer_for(getattr(cast, who), project=cast.project, group=group)
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
    offer = offer_for(cast.alice, project=None, group="")
    assert offer.is_plain
    assert not offer.has_many
    image("1.0", "env-0")
    assert not offer_for(cast.alice, project=None, group="").is_plain
    image("latest", "env-7")
    assert offer_for(cast.alice, project=None, group="").has_many


def test_it_says_why_one_cannot_be_chosen_here_and_puts_it_last(cast: Cast, django_assert_num_queries: Any) -> None:
    make_agent(architecture="aarch64")
    make_group("empty")
    image("3.0", architecture="x86_64")
    image("2.0", architecture="aarch64")
    image("1.0", "alone")
    elsewhere = image("1.0", "elsewhere", architecture="aarch64")
    elsewhere.domains.add(cast.elsewhere.domain)
    with django_assert_num_queries(3):
        found = offered(cast, "dana")
    assert [version.name for version in found["tensorflow"].versions] == ["2.0", "3.0"]
    assert found["tensorflow"].obstacle == ""
    assert found["tensorflow"].versions[1].obstacle == "The image needs x86_64; resource group default has aarch64."
    assert found["elsewhere-1.0"].obstacle == "Not open to project vision."
    assert next(iter(found)) == "tensorflow", "what can be chosen comes first"
    offer = offer_for(cast.dana, project=cast.project, group="default")
    assert offer.first_in("default") == Image.objects.get(name="tensorflow-2.0")
    nothing_known = offered(cast, "dana", group="empty")
    assert nothing_known["alone-1.0"].obstacle == "", "an empty group may get any agent"


def test_it_says_what_no_agent_of_the_group_can_run_now(
    cast: Cast, browse: Browse, django_assert_num_queries: Any
) -> None:
    agent = make_agent()
    make_agent(backend="process", group=make_group("native"))
    make_agent(backend="simulated", group=make_group("simulated"))
    image("1.0", "pulled")
    image("1.0", "python", process_reference="python3")
    made = image("1.0", "made", is_built_here=True)
    with django_assert_num_queries(4):
        found = offered(cast)
    missing = "No agent of resource group default has the image or can pull it now."
    assert {title: each.obstacle for title, each in found.items()} == {
        "pulled-1.0": "",
        "python-1.0": "",
        "made-1.0": missing,
    }
    assert not found["made-1.0"].is_closed, "a session waits until an agent has it"
    assert missing in markup(browse(cast.alice).get(LAUNCH))
    found = offered(cast, group="native")
    closed = "The image needs containers; resource group native has none for it."
    assert found["pulled-1.0"].obstacle == found["made-1.0"].obstacle == closed
    assert found["pulled-1.0"].is_closed and not found["python-1.0"].obstacle
    assert not any(each.obstacle for each in offered(cast, group="simulated").values())
    Agent.objects.filter(pk=agent.pk).update(low_disk=True)
    ImageOnAgent.objects.create(agent=agent, reference=made.reference)
    found = offered(cast)
    assert found["pulled-1.0"].obstacle == missing, "the disk of the only agent is full"
    assert found["made-1.0"].obstacle == ""


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
        ("mine (customized)", "x86_64"),
    ]
    assert len(offered(cast, "bob")["tensorflow-2.0"].versions) == 1
    Image.objects.filter(name="tensorflow-2.0").update(title="TensorFlow")
    Image.objects.filter(is_customized=True).update(title="my-tools")
    (environment,) = offered(cast).values()
    assert environment.title == "TensorFlow", "one's own leave the environment its name"
    assert environment.versions[1].badges == ("my-tools (customized)", "x86_64")


def test_environments_of_one_name_say_where_they_come_from(cast: Cast) -> None:
    image("1.0", "env", title="Same")
    image("1.0", "lab/env", title="Same")
    assert set(offered(cast)) == {f"Same ({ROOT}env)", f"Same ({ROOT}lab/env)"}


def typed(cast: Cast, **over: Any) -> dict[str, Any]:
    values = {"name": "try-one", "session_type": "interactive", "project": str(cast.project.pk), "preset": ""}
    return values | {"resource_group": "default", "cpu": "1", "mem": "1g", "manual_image": ""} | over


def allow_typed_images(cast: Cast) -> None:
    change_site(cast.dana, {"manual_image": True}, now=timezone.now())


def test_the_form_begins_with_the_first_environment_that_can_be_chosen(cast: Cast, browse: Browse) -> None:
    make_agent(architecture="aarch64")
    image("1.0", "aaa", architecture="x86_64")
    image("1.0", "bbb", architecture="aarch64")
    answer = browse(cast.alice).get(LAUNCH)
    assert answer.context["form"]["image"].value() == "bbb-1.0"
    page = markup(answer)
    assert 'name="image" value="bbb-1.0" checked' in page
    assert 'name="image" value="aaa-1.0" disabled' in page
    assert "The image needs x86_64; resource group default has aarch64." in page


def test_several_versions_are_one_list_by_environment_that_works_without_scripts(cast: Cast, browse: Browse) -> None:
    make_agent()
    for tag in ("1.0", "2.0"):
        image(tag)
    client = browse(cast.alice)
    page = markup(client.get(LAUNCH))
    assert '<optgroup label="tensorflow"' in page
    assert page.index('value="tensorflow-2.0"') < page.index('value="tensorflow-1.0"')
    assert client.post(LAUNCH, typed(cast, image="tensorflow-1.0")).status_code == 302
    assert ComputeSession.objects.get().image.name == "tensorflow-1.0"


def test_another_group_renews_the_environments_and_keeps_the_choice(cast: Cast, browse: Browse) -> None:
    make_agent(architecture="x86_64")
    make_agent(architecture="aarch64", group=make_group("arm"))
    image("1.0")
    image("2.0")
    renewed = browse(cast.alice).post(RENEWED, typed(cast, image="tensorflow-1.0", resource_group="arm"))
    page = markup(renewed)
    assert "The image needs x86_64; resource group arm has aarch64." in page
    assert "selected>tensorflow · 1.0" in page
    assert "invalid-feedback" not in page
    of_bob = typed(cast, owner="bob@example.com")
    assert browse(cast.alice).post(RENEWED, of_bob).status_code == 200, "for oneself then"


def test_a_typed_image_counts_instead_of_the_choice_where_the_site_allows_it(cast: Cast, browse: Browse) -> None:
    make_agent()
    image("1.0")
    image("2.0")
    client = browse(cast.alice)
    assert 'name="manual_image"' not in markup(client.get(LAUNCH))
    ignored = typed(cast, image="tensorflow-1.0", manual_image=f"{ROOT}tensorflow:2.0", name="ignored")
    assert client.post(LAUNCH, ignored).status_code == 302
    assert ComputeSession.objects.get().image.name == "tensorflow-1.0"
    allow_typed_images(cast)
    assert 'name="manual_image"' in markup(client.get(LAUNCH))
    assert client.post(LAUNCH, typed(cast, manual_image=f"{ROOT}tensorflow:2.0")).status_code == 302
    assert ComputeSession.objects.get(name="try-one").image.name == "tensorflow-2.0"


def test_a_typed_name_is_no_door_past_what_one_may_use(cast: Cast, browse: Browse) -> None:
    make_agent()
    allow_typed_images(cast)
    image("1.0")
    image("1.0", "off", is_enabled=False)
    image("1.0", "theirs").domains.add(cast.elsewhere.domain)
    image("1.0", "bobs", is_customized=True, owner=cast.bob)
    client = browse(cast.alice)
    for name in ("off-1.0", f"{ROOT}theirs:1.0", "bobs-1.0", "docker.io/library/nothing:1.0"):
        errors = client.post(LAUNCH, typed(cast, manual_image=name)).context["form"].errors
        assert errors["manual_image"] == ["No image of this name is open to alice@example.com."], name
        assert "image" not in errors
    wrong = client.post(LAUNCH, typed(cast, image="tensorflow-1.0", manual_image="not a name!"))
    assert "is not the name of an image" in wrong.context["form"].errors["manual_image"][0]
    assert 'value="not a name!"' in markup(wrong)
    foreign = image("1.0", "foreign")
    foreign.domains.add(cast.elsewhere.domain)
    dana = browse(cast.dana).post(LAUNCH, typed(cast, manual_image="foreign-1.0"))
    assert "not found for project" in dana.context["form"].errors["manual_image"][0], "not open to the project"
    assert not ComputeSession.objects.exists()


def test_the_launcher_begins_with_the_larger_python_where_an_agent_has_it(cast: Cast, browse: Browse) -> None:
    seed_images()
    group, other = make_group("default"), make_group("other")
    science = Image.objects.get(name="python-science")
    agent = make_agent("elsewhere", group=other)
    ImageOnAgent.objects.create(agent=agent, reference=science.reference)
    page = browse(cast.alice)

    def chosen(query: str = "") -> str:
        return str(page.get(LAUNCH + query).context["form"]["image"].value())

    assert chosen() == "python"  # it is still being made
    agent.resource_group = group
    agent.save()
    assert chosen() == "python-science"
    assert chosen("?image=python") == "python"
    Image.objects.filter(pk=science.pk).update(is_enabled=False)
    assert chosen() == "python"
    Image.objects.filter(name="python").update(is_enabled=False)
    Image.objects.filter(pk=science.pk).update(is_enabled=True)
    agent.delete()
    assert chosen() == "python-science"  # nothing else is there


def test_the_images_that_come_along_say_what_is_in_them(cast: Cast) -> None:
    seed_images()
    make_agent()
    found = offered(cast)
    assert list(found) == ["Python", "Python (science)"]
    assert "pandas" in found["Python (science)"].description


def test_without_a_group_or_a_storage_host_it_says_who_can_do_what(cast: Cast, browse: Browse) -> None:
    user, superadmin = (browse(one) for one in (cast.alice, cast.dana))
    for path in ("/dashboard/", LAUNCH):
        assert "No resource group is open to you yet. Ask an" in markup(user.get(path)), path
        assert '<a href="/manage/groups/">Open one to them</a>' in markup(superadmin.get(path)), path
    for path in ("/folders/new/", "/sessions/new/folder/"):
        assert "for new folders. Ask an administrator." in markup(user.get(path)), path
        assert '<a href="/manage/storage-hosts/">Add or enable one</a>' in markup(superadmin.get(path)), path


def test_without_an_image_it_says_who_can_do_what(cast: Cast, browse: Browse) -> None:
    make_group()
    user, superadmin = (markup(browse(one).get(LAUNCH)) for one in (cast.alice, cast.dana))
    assert "Ask an administrator to enable one" in user and "/manage/images/" not in user
    assert "Ask an administrator" not in superadmin
    assert 'Under <a href="/manage/images/">Images</a>, import those found on agents' in superadmin
