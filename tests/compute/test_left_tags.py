"""What a registry has of a deleted own image leaves it, and nothing else; what stays there is told with the reason."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone

from backendai.base.core.image_names import parse_image_name
from backendai.base.wire.images import DEPLOYMENT_LABEL, ID_LABEL
from backendai.base.wire.messages import ImageSighting
from backendai.base.wire.node_jobs import JobState
from backendai.domain.accounts.models import User
from backendai.domain.activity.jobs import cancel_job
from backendai.domain.activity.models import AuditEntry, BackgroundJob
from backendai.domain.catalog.models import Image, ImageOnAgent, Registry
from backendai.domain.catalog.registries import write_registry
from backendai.domain.catalog.services import record_images
from backendai.domain.catalog.shares import share_image
from backendai.domain.catalog.tags import remove_tag, tags_that_stayed, try_old_ones_again, waiting_removals
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.images.commit_reports import mark_unwanted
from backendai.domain.compute.services.images.own_images import delete_own_image, remove_left_tags
from backendai.domain.compute.services.launching.purging import purge_user
from backendai.domain.compute.status import Status
from backendai.portal.loops import tags
from tests.cast import Cast
from tests.catalog.fake_registry import ACCOUNT, FakeRegistry, serving
from tests.compute.test_own_images import Saved, launch
from tests.factories import make_agent, make_image
from tests.patience import until

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]
OTHER = "sha256:" + "e" * 64


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with serving(FakeRegistry()) as registry:
        registry.wants_token = True
        yield registry


@pytest.fixture
def lab(fake: FakeRegistry) -> Registry:
    values = {"name": "lab", "url": f"http://{fake.address}", "username": ACCOUNT[0], "password": ACCOUNT[1]}
    registry = write_registry(None, Registry(), values | {"takes_pushes": True})
    make_image("torch", reference=f"{fake.address}/lab/torch:2", registry=registry)
    fake.tag("lab/torch", "2", fake.image({"the": "base"}))
    return registry


def pushed(cast: Cast, fake: FakeRegistry) -> Image:
    """An own image of Alice's that its node has pushed."""
    saved = Saved(cast, image="torch")
    saved.begin()
    spec = saved.spec()
    digest = fake.image(spec.labels)
    name = parse_image_name(spec.reference)
    fake.tag(name.repository, name.tag, digest)
    assert saved.tell(spec.commit_id, JobState.DONE, size_bytes=5, digest=digest)
    return Image.objects.get(pk=spec.commit_id)


def removed(image: Image, by: User) -> BackgroundJob:
    """The job of its removal, carried out."""
    delete_own_image(by, image, now=timezone.now())
    return carried_out()


def carried_out() -> BackgroundJob:
    (job_id,) = waiting_removals()
    remove_tag(job_id, timezone.now)
    return BackgroundJob.objects.get(pk=job_id)


def test_it_leaves_the_registry_and_its_base_stays(cast: Cast, fake: FakeRegistry, lab: Registry) -> None:
    image = pushed(cast, fake)
    assert len(fake.tags["lab/torch"]) == 2
    delete_own_image(cast.alice, image, now=timezone.now())
    assert fake.deleted == [], "nothing remote happens while somebody waits"
    job = carried_out()
    assert (job.status, job.kind, job.subject, job.owner) == ("DONE", "image.untag", image.reference, None)
    assert fake.deleted == [f"lab/torch@{image.digest}"] and list(fake.tags["lab/torch"]) == ["2"]
    assert all(auth.startswith("Bearer") for path, auth in fake.asked if path.endswith(image.digest) and auth)
    assert not tags_that_stayed()
    remove_tag(job.pk, timezone.now)
    assert len(fake.deleted) == 1, "a hint that comes twice"


def test_one_that_lies_on_its_node_asks_no_registry(cast: Cast) -> None:
    delete_own_image(cast.alice, Saved(cast).make(), now=timezone.now())
    assert waiting_removals() == []


def test_a_tag_that_is_gone_already_is_no_failure(cast: Cast, fake: FakeRegistry, lab: Registry) -> None:
    image = pushed(cast, fake)
    fake.tags["lab/torch"].popitem()
    job = removed(image, cast.alice)
    assert (job.status, job.message) == ("DONE", "The registry no longer has this tag.")


@pytest.mark.parametrize(
    ("answer", "words", "fix"),
    [
        ((405, {"errors": [{"code": "UNSUPPORTED"}]}), "does not allow deletion", "REGISTRY_STORAGE_DELETE_ENABLED"),
        ((400, {"errors": [{"code": "UNSUPPORTED"}]}), "does not allow deletion", "REGISTRY_STORAGE_DELETE_ENABLED"),
        ((403, {}), "may not delete there", "account"),
        ((500, {}), "Unexpected answer (HTTP 500", "address and account"),
    ],
)
def test_a_refusal_is_told_and_can_be_tried_again(
    cast: Cast, fake: FakeRegistry, lab: Registry, answer: tuple[int, Any], words: str, fix: str
) -> None:
    image = pushed(cast, fake)
    fake.to_delete = answer
    job = removed(image, cast.alice)
    assert job.status == "FAILED" and words in job.message and fix in job.fix
    assert ACCOUNT[1] not in job.message
    assert image not in Image.objects.visible_to(cast.alice), "for its owner it is gone"
    assert list(tags_that_stayed()) == [job]
    fake.to_delete = None
    dana, alice = Client(), Client()
    dana.force_login(cast.dana)
    alice.force_login(cast.alice)
    address = f"/api/v1/jobs/{job.pk}/retry/"
    assert alice.post(address).status_code == 404
    again = dana.post(address)
    assert (again.status_code, again.json()["subject"]) == (202, image.reference)
    assert dana.post(address).json()["code"] == "nothing-to-try-again"
    assert carried_out().status == "DONE" and not tags_that_stayed()
    assert AuditEntry.objects.get(action="image.untag").actor == cast.dana


def test_a_registry_that_does_not_answer_is_tried_again_by_itself(
    cast: Cast, fake: FakeRegistry, lab: Registry
) -> None:
    image = pushed(cast, fake)
    Registry.objects.update(url="http://127.0.0.1:9")
    job = removed(image, cast.alice)
    assert job.status == "FAILED" and "cannot be reached" in job.message
    Registry.objects.update(url=lab.url)
    now = timezone.now()
    try_old_ones_again(now + timedelta(days=6))
    assert waiting_removals() == []
    for _ in range(2):
        try_old_ones_again(now + timedelta(days=8))
    assert carried_out().status == "DONE"
    try_old_ones_again(now + timedelta(days=16))
    assert waiting_removals() == []


def test_what_another_image_is_too_stays(cast: Cast, fake: FakeRegistry, lab: Registry) -> None:
    image = pushed(cast, fake)
    fake.tag("lab/torch", "best", image.digest)
    other = make_image("best", reference=f"{fake.address}/lab/torch:best", registry=lab, digest=OTHER)
    by_tag = removed(image, cast.alice)
    assert by_tag.status == "FAILED" and "best has the same content" in by_tag.message
    Image.objects.filter(pk=other.pk).update(reference="elsewhere.example/x:1", digest=image.digest)
    for reference in ("elsewhere.example/x:1", f"{fake.address}/lab/torch@{image.digest}"):
        Image.objects.filter(pk=other.pk).update(reference=reference)
        try_old_ones_again(timezone.now() + timedelta(days=8))
        assert "best has the same content" in carried_out().message
    assert fake.deleted == []
    Image.objects.filter(pk=other.pk).update(deleted_at=timezone.now())
    try_old_ones_again(timezone.now() + timedelta(days=8))
    assert carried_out().status == "DONE" and len(fake.deleted) == 1


def test_a_tag_that_stands_for_something_else_now_stays(cast: Cast, fake: FakeRegistry, lab: Registry) -> None:
    image = pushed(cast, fake)
    tag = parse_image_name(image.reference).tag
    fake.tag("lab/torch", tag, fake.image({"of": "somebody"}))
    job = removed(image, cast.alice)
    assert job.status == "FAILED" and "a different image" in job.message and fake.deleted == []


def test_without_a_known_digest_only_its_labels_prove_that_it_is_it(
    cast: Cast, fake: FakeRegistry, lab: Registry
) -> None:
    foreign, ours = pushed(cast, fake), pushed_once_more(cast, fake)
    Image.objects.update(digest="")
    labels = {DEPLOYMENT_LABEL: "another", ID_LABEL: str(foreign.pk)}
    fake.tag("lab/torch", parse_image_name(foreign.reference).tag, fake.image(labels))
    foreign.refresh_from_db()
    assert "a different image" in removed(foreign, cast.alice).message
    ours.refresh_from_db()
    assert removed(ours, cast.alice).status == "DONE"
    assert settings.DEPLOYMENT and len(fake.deleted) == 1


def pushed_once_more(cast: Cast, fake: FakeRegistry) -> Image:
    Image.objects.filter(title="mine").update(title="theirs")
    return pushed(cast, fake)


def test_a_registry_that_was_deleted_is_found_by_its_host_or_named(
    cast: Cast, fake: FakeRegistry, lab: Registry
) -> None:
    image = pushed(cast, fake)
    Registry.objects.all().delete()
    image.refresh_from_db()
    job = removed(image, cast.alice)
    assert job.status == "FAILED" and f"no registry is configured for {fake.address}" in job.message
    values = {"name": "new", "url": f"http://{fake.address}", "username": ACCOUNT[0], "password": ACCOUNT[1]}
    write_registry(None, Registry(), values)
    try_old_ones_again(timezone.now() + timedelta(days=8))
    assert carried_out().status == "DONE"


def test_what_was_pushed_before_it_was_cancelled_leaves_too(cast: Cast, fake: FakeRegistry, lab: Registry) -> None:
    saved = Saved(cast, image="torch")
    job = saved.begin()
    spec = saved.spec()
    name, digest = parse_image_name(spec.reference), fake.image(spec.labels)
    fake.tag(name.repository, name.tag, digest)
    cancel_job(cast.alice, job.pk, now=timezone.now())
    assert not saved.tell(spec.commit_id, JobState.DONE, size_bytes=5, digest=digest)
    assert carried_out().status == "DONE"
    assert fake.deleted == [f"lab/torch@{digest}"]


def test_one_that_an_administrator_cancels_stays_and_says_so(cast: Cast, fake: FakeRegistry, lab: Registry) -> None:
    image = pushed(cast, fake)
    delete_own_image(cast.alice, image, now=timezone.now())
    cancel_job(cast.dana, waiting_removals()[0], now=timezone.now())
    assert (carried_out().status, fake.deleted) == ("CANCELLED", [])


def test_what_sessions_of_others_need_stays_until_they_have_ended(
    cast: Cast, fake: FakeRegistry, lab: Registry
) -> None:
    image = pushed(cast, fake)
    share_image(cast.alice, image, cast.project.pk, now=timezone.now())
    ComputeSession.objects.update(status=Status.TERMINATED)
    session = launch(cast.bob, image.name)
    agent = make_agent()
    record_images(agent, [ImageSighting(reference=image.reference, labels=image.labels)], "now")
    cast.alice.is_active = False
    cast.alice.save()
    purge_user(cast.dana, cast.alice, typed=cast.alice.email, now=timezone.now())
    assert image not in Image.objects.usable_by(cast.bob)
    now = timezone.now()
    remove_left_tags(now)
    mark_unwanted(now)
    assert waiting_removals() == [] and not ImageOnAgent.objects.filter(agent=agent, is_unwanted=True).exists()
    ComputeSession.objects.filter(pk=session.pk).update(status=Status.TERMINATED)
    for _ in range(2):
        remove_left_tags(now)
        mark_unwanted(now)
    assert ImageOnAgent.objects.filter(agent=agent, is_unwanted=True).exists()
    assert carried_out().status == "DONE" and len(fake.deleted) == 1
    remove_left_tags(now + timedelta(days=8))
    assert waiting_removals() == [], "what is gone is not asked for again"


def test_what_was_deleted_before_and_whose_job_was_lost_is_found_again(
    cast: Cast, fake: FakeRegistry, lab: Registry
) -> None:
    image = pushed(cast, fake)
    delete_own_image(cast.alice, image, now=timezone.now())
    BackgroundJob.objects.all().delete()
    remove_left_tags(timezone.now())
    assert carried_out().status == "DONE" and len(fake.deleted) == 1


@pytest.mark.django_db(transaction=True)
def test_a_hint_does_it_beside_the_passes(cast: Cast, fake: FakeRegistry, lab: Registry) -> None:
    delete_own_image(cast.alice, pushed(cast, fake), now=timezone.now())
    tags.begin()
    until(lambda: "tags" not in {thread.name for thread in threading.enumerate()})
    assert len(fake.deleted) == 1 and waiting_removals() == []


def test_the_panel_names_what_stayed_and_asks_before_another_try(
    cast: Cast, fake: FakeRegistry, lab: Registry, django_assert_num_queries: Callable[..., Any]
) -> None:
    fake.to_delete = (405, {})
    job = removed(pushed(cast, fake), cast.alice)
    dana = Client()
    dana.force_login(cast.dana)
    with django_assert_num_queries(4):
        page = dana.get("/manage/jobs/?kind=image.untag").content.decode()
    address = f"/manage/jobs/{job.pk}/again/"
    assert job.subject in page and "does not allow deletion" in page and address in page
    assert "does not allow deletion" in dana.get(address).content.decode()
    fake.to_delete = None
    assert dana.post(address).status_code == 302
    assert address not in dana.get("/manage/jobs/").content.decode()
    assert dana.post(address).status_code == 422
    assert carried_out().status == "DONE"
