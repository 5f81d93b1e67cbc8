"""An own image that is shared with a project: its members start from it, nobody else learns of it, one owner has it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.utils import timezone

from backendai.base.core.errors import Conflict, NotFound, UserError
from backendai.domain.accounts.models import Membership, User
from backendai.domain.activity.models import AuditEntry
from backendai.domain.catalog.models import Image, ImageShare
from backendai.domain.catalog.shares import projects_to_share_with, share_image, take_back_image
from backendai.domain.cluster.site import change_site
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.images.own_images import delete_own_image
from backendai.domain.compute.status import Status
from backendai.portal.web.launch.fields.environments import offer_for
from tests.cast import Cast
from tests.compute.test_own_images import Saved, launch
from tests.factories import make_running_session

pytestmark = pytest.mark.django_db
OWN = "/account/images/"


@pytest.fixture
def image(cast: Cast) -> Image:
    return Saved(cast).make("tools")


def share(cast: Cast, image: Image) -> ImageShare:
    return share_image(cast.alice, image, cast.project.pk, now=timezone.now())


def caller(person: User) -> Callable[..., Any]:
    """Send JSON as this person: (method, path, body)."""
    client = Client()
    client.force_login(person)

    def call(method: str, path: str, body: Any = None) -> Any:
        return client.generic(method, path, json.dumps(body) if body else b"", content_type="application/json")

    return call


def doors(cast: Cast, person: User, image: Image) -> list[bool]:
    """Whether somebody gets to the image by list, address, preview, launch, the form's choice, and a typed name."""
    change_site(cast.dana, {"manual_image": True}, now=timezone.now())
    call, browser = caller(person), Client()
    browser.force_login(person)
    (place,) = Membership.objects.filter(user=person).values_list("project", flat=True)
    body = {"type": "interactive", "image": image.name, "resources": {"cpu": 1, "mem": "512m"}}
    by_reference = body | {"image": image.reference}
    form = {"name": "by-form", "session_type": "interactive", "project": str(place), "preset": ""}
    form |= {"resource_group": "default", "cpu": "1", "mem": "1g", "manual_image": ""}
    open_doors = [
        image.name in call("GET", "/api/v1/images/").content.decode(),
        call("GET", f"/api/v1/images/{image.pk}/").status_code == 200,
        call("POST", "/api/v1/session-preview/", body).status_code == 200,
        call("POST", "/api/v1/session-preview/", by_reference).status_code == 200,
        call("POST", "/api/v1/sessions/", body | {"name": "by-rest"}).status_code == 201,
        image.name in browser.get("/sessions/new/").content.decode(),
        browser.post("/sessions/new/", form | {"image": image.name}).status_code == 302,
        browser.post("/sessions/new/", form | {"name": "typed", "manual_image": image.reference}).status_code == 302,
        image.name in browser.get(OWN).content.decode(),
    ]
    ComputeSession.objects.filter(owner=person).update(status=Status.TERMINATED)
    return open_doors


def test_a_member_gets_in_by_every_door_and_nobody_else_by_any(cast: Cast, image: Image) -> None:
    assert not any(doors(cast, cast.bob, image)), "before it is shared"
    share(cast, image)
    assert all(doors(cast, cast.bob, image))
    assert not any(doors(cast, cast.charlie, image))
    take_back_image(cast.alice, image, cast.project.pk)
    assert not any(doors(cast, cast.bob, image)), "after it is taken back"


@pytest.mark.parametrize(
    "end",
    [
        lambda cast, image: Membership.objects.filter(user=cast.bob).delete(),
        lambda cast, image: Membership.objects.filter(user=cast.alice).delete(),
        lambda cast, image: type(cast.project).objects.filter(pk=cast.project.pk).update(is_active=False),
        lambda cast, image: Image.objects.filter(pk=image.pk).update(is_enabled=False),
        lambda cast, image: Image.objects.filter(pk=image.pk).update(is_customized=True, owner=None),
        lambda cast, image: image.domains.add(cast.elsewhere.domain),
        lambda cast, image: delete_own_image(cast.alice, image, now=timezone.now()),
    ],
    ids=["member left", "owner left", "project shut", "disabled", "owner gone", "other domain", "deleted"],
)
def test_a_share_stands_only_while_both_belong_to_the_project(
    cast: Cast, image: Image, end: Callable[[Cast, Image], Any]
) -> None:
    share(cast, image)
    assert image in Image.objects.usable_by(cast.bob) and image in Image.objects.shared_with(cast.bob)
    end(cast, image)
    assert image not in Image.objects.usable_by(cast.bob) and image not in Image.objects.visible_to(cast.bob)
    assert image not in Image.objects.shared_with(cast.bob)


def test_it_is_one_row_for_somebody_of_several_projects(cast: Cast, image: Image) -> None:
    share(cast, image)
    for person in (cast.alice, cast.bob):
        Membership.objects.create(user=person, project=cast.elsewhere)
    share_image(cast.alice, image, cast.elsewhere.pk, now=timezone.now())
    assert list(Image.objects.shared_with(cast.bob)) == [image]
    assert Image.objects.usable_by(cast.bob).filter(pk=image.pk).count() == 1
    assert image in Image.objects.usable_by(cast.charlie)


def test_one_shares_with_projects_of_ones_own_only(cast: Cast, image: Image) -> None:
    assert projects_to_share_with(cast.alice, image) == [cast.project]
    with pytest.raises(NotFound, match="Project not found"):
        share_image(cast.alice, image, cast.elsewhere.pk, now=timezone.now())
    share(cast, image)
    share(cast, image)
    assert ImageShare.objects.count() == AuditEntry.objects.filter(action="image.share").count() == 1
    assert projects_to_share_with(cast.alice, image) == []
    Membership.objects.create(user=cast.alice, project=cast.elsewhere)
    image.domains.add(cast.project.domain)
    assert projects_to_share_with(cast.alice, image) == []
    with pytest.raises(Conflict, match="not open to the domain of project other"):
        share_image(cast.alice, image, cast.elsewhere.pk, now=timezone.now())
    take_back_image(cast.alice, image, cast.project.pk)
    with pytest.raises(NotFound, match="not shared"):
        take_back_image(cast.alice, image, cast.project.pk)
    assert AuditEntry.objects.get(action="image.take-back").details["project"] == "vision"


def test_sessions_go_on_and_their_names_are_not_told_to_who_may_not_see_them(cast: Cast, image: Image) -> None:
    share(cast, image)
    bobs = launch(cast.bob, image.name)
    take_back_image(cast.alice, image, cast.project.pk)
    bobs.refresh_from_db()
    assert bobs.status == Status.PENDING and bobs.image == image
    with pytest.raises(UserError, match=r"Image .* not found"):
        launch(cast.bob, image.name)
    with pytest.raises(Conflict, match=r"used by active sessions of other users .*\(1\)") as refused:
        delete_own_image(cast.alice, image, now=timezone.now())
    assert (
        refused.value.details.items() >= {"sessions": [], "others": 1}.items()
        and bobs.name not in refused.value.message
    )
    browser = Client()
    browser.force_login(cast.alice)
    asked = browser.get(f"{OWN}{image.pk}/delete/").content.decode()
    assert (
        "Used by 1 active session of other users" in asked
        and bobs.name not in asked
        and "This cannot be undone." not in asked
    )
    with pytest.raises(Conflict, match=bobs.name):
        delete_own_image(cast.dana, image, now=timezone.now())
    ComputeSession.objects.filter(pk=bobs.pk).update(status=Status.TERMINATED)
    share(cast, image)
    delete_own_image(cast.alice, image, now=timezone.now())
    assert not ImageShare.objects.exists()


def test_scripts_share_and_take_back_and_only_its_owner_does(
    cast: Cast, image: Image, django_assert_num_queries: Any
) -> None:
    alice, bob, dana, charlie = (caller(one) for one in (cast.alice, cast.bob, cast.dana, cast.charlie))
    own = f"/api/v1/me/images/{image.pk}/"
    body = {"project": str(cast.project.pk)}
    for stranger in (bob, dana, charlie):
        assert stranger("POST", f"{own}shares/", body).status_code == 404
    assert alice("POST", f"{own}shares/", {"project": str(cast.elsewhere.pk)}).status_code == 404
    assert alice("POST", f"{own}shares/", {"project": "x"}).status_code == 400
    for _ in range(2):
        answer = alice("POST", f"{own}shares/", body)
        assert answer.status_code == 201
    assert answer.json()["projects"] == [{"id": str(cast.project.pk), "name": "vision"}]
    seen = bob("GET", f"/api/v1/images/{image.pk}/").json()
    assert (seen["owner"], seen["title"], seen["is_customized"]) == (cast.alice.email, "tools", True)
    assert "projects" not in seen
    for method, path in (
        ("PATCH", own),
        ("DELETE", own),
        ("DELETE", f"{own}shares/{cast.project.pk}/"),
        ("POST", f"{own}shares/"),
    ):
        assert bob(method, path, {"name": "bobs-own"} if method == "PATCH" else body).status_code == 404
    assert bob("PATCH", f"/api/v1/images/{image.pk}/", {"title": "bobs"}).status_code == 403
    assert bob("DELETE", f"/api/v1/images/{image.pk}/").status_code == 403
    assert bob("GET", "/api/v1/me/images/").json()["results"] == []
    for number in range(3):
        another = Saved(cast).make(f"more-{number}")
        share(cast, another)
        with django_assert_num_queries(6):  # login session, user, page, aliases, shares, projects
            assert len(alice("GET", "/api/v1/me/images/").json()["results"]) == number + 2
    assert alice("DELETE", f"{own}shares/{cast.project.pk}/").status_code == 204
    assert alice("DELETE", f"{own}shares/{cast.project.pk}/").status_code == 404
    assert bob("GET", f"/api/v1/images/{image.pk}/").status_code == 404


def test_the_pages_share_it_mark_whose_it_is_and_ask_no_more_for_more_of_them(
    cast: Cast, image: Image, django_assert_max_num_queries: Any
) -> None:
    alice, bob = Client(), Client()
    alice.force_login(cast.alice)
    bob.force_login(cast.bob)
    address = f"{OWN}{image.pk}/share/"
    assert "vision" in alice.get(address).content.decode()
    assert alice.post(address, {"project": str(cast.elsewhere.pk)}).status_code == 422
    assert bob.get(address).status_code == bob.post(address, {"project": str(cast.project.pk)}).status_code == 404
    page = alice.post(address, {"project": str(cast.project.pk)}, follow=True).content.decode()
    assert "tools is shared with vision." in page and "no other project" in page
    assert image.name in bob.get(OWN).content.decode() and cast.alice.email in bob.get(OWN).content.decode()
    with django_assert_max_num_queries(20) as counted:
        bob.get(OWN)
    for number in range(3):
        share(cast, Saved(cast).make(f"more-{number}"))
    with django_assert_max_num_queries(len(counted)):
        assert "more-2" in bob.get(OWN).content.decode()
    take_back = f"{address}{cast.project.pk}/take-back/"
    assert bob.post(take_back).status_code == 404
    assert "no longer shared with vision" in alice.post(take_back, follow=True).content.decode()
    assert "not shared with this project" in alice.post(take_back, follow=True).content.decode()
    assert image.name not in bob.get(OWN).content.decode()


def test_the_launcher_says_whose_it_is_to_others_alone(cast: Cast, image: Image) -> None:
    share(cast, image)

    def badges(person: User) -> dict[UUID, tuple[str, ...]]:
        offer = offer_for(person, project=cast.project, group="default")
        return {version.image.pk: version.badges for each in offer.environments for version in each.versions}

    assert badges(cast.alice)[image.pk][:1] == ("tools (customized)",)
    assert cast.alice.email not in badges(cast.alice)[image.pk]
    assert badges(cast.bob)[image.pk][:2] == ("tools (customized)", cast.alice.email)
    assert badges(cast.dana)[image.pk][:2] == ("tools (customized)", cast.alice.email)
    common = make_running_session(cast.bob).image_id
    assert cast.alice.email not in badges(cast.bob)[common]
