"""What nodes say about images, and what the catalogue believes of it."""

import pytest
from django.test import Client
from django.urls import reverse

from backendai.base.wire.messages import ImageSighting
from backendai.domain.catalog.models import Image, ImageOnAgent
from backendai.domain.catalog.services import record_images
from tests.factories import make_agent, make_image

pytestmark = pytest.mark.django_db


def sighting(minimum: str) -> ImageSighting:
    return ImageSighting(
        reference="local/python:latest",
        architecture="amd64",
        labels={"ai.backend.resource.min.cpu": minimum, "ai.backend.resource.min.mem": "64m"},
    )


def test_it_takes_over_the_labels_of_an_image_at_its_first_sight() -> None:
    image, agent = make_image("python"), make_agent()
    record_images(agent, [sighting("0.5")], "digest")
    image.refresh_from_db()
    assert image.minimum == {"cpu": "0.5", "mem": str(64 * 2**20)}
    assert image.architecture == "x86_64"


def test_a_node_cannot_change_later_what_everybody_may_ask_for() -> None:
    image = make_image("python")
    record_images(make_agent(), [sighting("0.5")], "digest")
    record_images(make_agent(), [sighting("63")], "digest")
    image.refresh_from_db()
    assert image.minimum["cpu"] == "0.5"


def test_it_forgets_images_that_the_agent_has_no_more() -> None:
    agent = make_agent()
    make_image("python")
    record_images(agent, [sighting("0.5")], "one")
    record_images(agent, [], "none")
    assert not ImageOnAgent.objects.filter(agent=agent).exists()


def test_an_image_that_comes_after_the_agents_word_gets_its_labels_too(admin_client: Client) -> None:
    record_images(make_agent(), [sighting("0.5")], "digest")
    form = {"name": "late", "reference": "local/python:latest", "is_enabled": "on", "minimum": "cpu=1"}
    answer = admin_client.post(reverse("manage:image-new"), form)
    assert answer.status_code == 302, answer.context["form"].errors
    assert Image.objects.get(name="late").minimum["cpu"] == "0.5"
