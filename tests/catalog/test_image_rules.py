"""Whose an image is, under which names it starts, and within which bounds."""

from __future__ import annotations

from typing import Any

import pytest

from backendai.base.core.errors import Conflict, UserError
from backendai.base.wire.messages import ImageSighting
from backendai.domain.accounts.models import Domain, User
from backendai.domain.activity.models import AuditEntry
from backendai.domain.catalog.images import change_image, delete_image, set_aliases
from backendai.domain.catalog.models import Image, ImageAlias
from backendai.domain.catalog.services import record_images
from backendai.domain.compute.services.agents.kernel_specs import spec_for
from backendai.domain.compute.services.apps.of_session import apps_of
from backendai.domain.compute.services.launching.create import create_session
from backendai.domain.compute.spec import SessionSpec
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_image, make_session, place

pytestmark = pytest.mark.django_db
DIGEST = "sha256:" + "ab" * 32


def seen_by(user: User) -> set[str]:
    visible = set(Image.objects.visible_to(user).values_list("name", flat=True))
    assert {image.name for image in Image.objects.usable_by(user)} <= visible
    return visible


def test_a_customised_image_is_its_owners_alone(cast: Cast) -> None:
    make_group()
    make_image("python")
    make_image("mine", is_customized=True, owner=cast.alice)
    make_image("orphan", is_customized=True)
    make_image("off", is_enabled=False)
    assert seen_by(cast.alice) == {"python", "mine"}
    assert seen_by(cast.bob) == seen_by(cast.charlie) == {"python"}
    assert seen_by(cast.dana) == {"python", "mine", "orphan", "off"}
    User.objects.filter(pk=cast.bob.pk).update(role=User.Role.ADMIN)
    assert seen_by(User.objects.get(pk=cast.bob.pk)) == {"python", "mine"}, "an admin of Alice's domain"
    with pytest.raises(UserError, match="Image 'mine' not found"):
        make_session(cast.charlie, image="mine", resource_group="default")


def test_an_allow_list_of_domains_holds_for_pages_and_launches(cast: Cast) -> None:
    make_group()
    image = make_image("python")
    image.domains.set([cast.elsewhere.domain])
    assert (seen_by(cast.alice), seen_by(cast.charlie)) == (set(), {"python"})
    assert seen_by(cast.dana) == {"python"}
    assert make_session(cast.charlie).image == image
    for user in (cast.alice, cast.dana):
        with pytest.raises(UserError, match=f"for project {cast.project.name}") as raised:
            make_session(user)
        assert raised.value.code == "unknown-image"
    image.domains.add(cast.alice.domain)
    assert make_session(cast.alice).image == image


def test_it_starts_by_name_by_another_name_and_by_reference(cast: Cast) -> None:
    make_group()
    image, other = make_image("python"), make_image("other")
    set_aliases(image, ["py", "python3"])
    for name in ("python", "py", image.reference):
        assert create_session(cast.alice, SessionSpec(image=name)).image == image
    for taken in ("other", "python"):
        with pytest.raises(Conflict, match=f"{taken} is already a name or an alias of"):
            set_aliases(image, ["py", taken])
    with pytest.raises(Conflict, match="py is already a name"):
        set_aliases(other, ["py"])
    with pytest.raises(UserError, match="not allowed"):
        set_aliases(other, ["no good"])
    with pytest.raises(UserError, match="py is another name"):
        change_image(None, other, {"name": "py"})
    set_aliases(image, ["python3", "py4"])
    assert set(ImageAlias.objects.values_list("name", flat=True)) == {"python3", "py4"}


def test_its_bounds_hold_and_the_usual_amounts_stay_within(cast: Cast) -> None:
    image = make_image("python")
    change_image(cast.dana.pk, image, {"maximum": {"cpu": 2, "mem": "512m", "cuda.device": 1}})
    assert make_session(cast.alice, resources={}).kernel_slots.describe() == "1 CPU core, 512 MiB of memory"
    with pytest.raises(UserError, match="python may have at most 2") as raised:
        make_session(cast.alice, resources={"cpu": 3})
    assert (raised.value.code, raised.value.field) == ("above-maximum", "resources.cpu")
    with pytest.raises(UserError, match="the largest is 2, but the smallest is 3"):
        change_image(cast.dana.pk, image, {"minimum": {"cpu": 3}})
    image.refresh_from_db()
    assert image.minimum["cpu"] == "0.1"
    changes = AuditEntry.objects.get(action="image.change").details["changes"]
    assert changes == {"maximum": [{}, {"cpu": "2", "cuda.device": "1", "mem": str(2**29)}]}


def test_labels_bring_the_largest_amounts_too() -> None:
    labels = {"ai.backend.resource.min.cpu": "1", "ai.backend.resource.max.cpu": "4"}
    image = make_image("python", minimum={})
    record_images(make_agent(), [ImageSighting(reference=image.reference, labels=labels)], "d")
    image.refresh_from_db()
    assert (image.minimum, image.maximum) == ({"cpu": "1"}, {"cpu": "4"})


@pytest.mark.parametrize(
    "services", ["notes", "notes:ftp:8080", "notes:http:80", "a:http:8080,a:http:8081", "a:tcp:2200"]
)
def test_it_refuses_services_that_break_the_rules(services: str) -> None:
    with pytest.raises(UserError) as raised:
        change_image(None, make_image(), {"services": services})
    assert raised.value.field == "services"


def test_services_that_an_administrator_sets_come_before_those_of_the_label(cast: Cast) -> None:
    image = make_image(labels={"ai.backend.service-ports": "old:http:8080"})
    change_image(cast.dana.pk, image, {"services": "notes:http:[8081,8082],ring:tcp:9000"})
    session, agent = make_session(cast.alice), make_agent()
    place(session, agent)
    assert {app.name for app in apps_of(session, None)} == {"notes", "ring"}
    spec = spec_for(agent, session.kernels.get().pk)
    assert spec.environ["BACKENDAI_SERVICE_PORTS"] == "notes:http:[8081,8082],ring:tcp:9000"


@pytest.mark.parametrize(
    ("over", "exact"),
    [
        ({"reference": "cr.example.org/python:3"}, f"cr.example.org/python@{DIGEST}"),
        ({"is_built_here": True}, "local/python:latest"),
    ],
)
def test_a_session_starts_exactly_what_its_image_was_at_the_launch(
    cast: Cast, over: dict[str, Any], exact: str
) -> None:
    image, agent = make_image(digest=DIGEST, **over), make_agent()
    session = make_session(cast.alice)
    Image.objects.update(digest="sha256:" + "cd" * 32)
    session.refresh_from_db()
    assert session.image_digest == DIGEST
    place(session, agent)
    spec = spec_for(agent, session.kernels.get().pk)
    assert (spec.image, spec.exact_image) == (image.reference, exact)


def test_what_nodes_make_is_recorded_as_they_say_and_what_registries_have_is_not(cast: Cast) -> None:
    made, fetched = make_image("made", is_built_here=True), make_image("fetched", digest=DIGEST)
    said = [ImageSighting(reference=image.reference, digest="sha256:" + "ef" * 32) for image in (made, fetched)]
    record_images(make_agent(), said, "d")
    assert make_session(cast.alice, image="made").image_digest == "sha256:" + "ef" * 32
    assert make_session(cast.alice, image="fetched").image_digest == DIGEST


def test_an_image_is_forgotten_only_while_no_session_names_it(cast: Cast) -> None:
    make_session(cast.alice)
    with pytest.raises(Conflict, match="1 sessions") as raised:
        delete_image(cast.dana.pk, Image.objects.get())
    assert raised.value.code == "image-in-use"
    delete_image(cast.dana.pk, make_image("unused"))
    assert list(Image.objects.values_list("name", flat=True)) == ["python"]
    assert AuditEntry.objects.filter(action="image.delete").count() == 1


def test_how_many_are_open_does_not_depend_on_how_many_domains_there_are(cast: Cast) -> None:
    image = make_image("python")
    image.domains.set(Domain.objects.bulk_create(Domain(name=f"d{number}") for number in range(5)))
    image.domains.add(cast.alice.domain)
    assert Image.objects.visible_to(cast.alice).count() == 1
