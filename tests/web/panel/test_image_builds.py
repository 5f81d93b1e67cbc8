"""The build of an image of the platform's own, on the administration pages and where people wait for it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.domain.accounts.models import User
from backendai.domain.activity.jobs import report_progress, start_job
from backendai.domain.activity.models import AuditEntry, BackgroundJob
from backendai.domain.catalog.builds import ASKED, WATCH_LEASE, begin_build, build_failed
from backendai.domain.catalog.models import Image, ImageOnAgent
from backendai.domain.catalog.services import BUILD_JOB
from backendai.domain.cluster.native_sessions import runs_natively
from backendai.domain.cluster.services import take_lease
from tests.api.callers import Caller
from tests.cast import Cast
from tests.factories import make_agent, make_image

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
HTMX = {"HX-Request": "true"}


@pytest.fixture
def image() -> Image:
    make_agent()
    take_lease(WATCH_LEASE, "here:1:x", now=timezone.now(), duration=timedelta(hours=1))
    return make_image("python", is_built_here=True, process_reference="process/python")


def fail(image: Image, *, may_run_natively: bool = False) -> BackgroundJob:
    now = timezone.now()
    job = begin_build(image, None, now=now)
    told = ("disk-full", "The disk is full.", "Free 3 GB.")
    build_failed(job, *told, may_run_natively=may_run_natively, now=now)
    return job


def part(client: Client, image: Image) -> str:
    answer = client.get(reverse("manage:image-build", args=[image.pk]), headers=HTMX)
    return answer.content.decode()


def test_it_shows_progress_that_renews_itself(cast: Cast, image: Image, browse: Browse) -> None:
    job = start_job(BUILD_JOB, image.reference, now=timezone.now())
    report_progress(job.pk, 0.4, "base: installing packages (step 2 of 8)", now=timezone.now())
    client = browse(cast.dana)
    for address in (reverse("manage:images"), reverse("manage:image", args=[image.pk])):
        page = client.get(address).content.decode()
        assert "Image python is being built" in page
        assert 'hx-trigger="every 2s"' in page
    assert 'value="40"' in part(client, image)
    assert "step 2 of 8" in part(client, image)
    assert "Retry build" not in part(client, image)


def test_a_failure_has_its_code_sentence_fix_and_a_button(cast: Cast, image: Image, browse: Browse) -> None:
    fail(image)
    client = browse(cast.dana)
    page = part(client, image)
    for words in ("The disk is full. Free 3 GB.", "<code>disk-full</code>", "tries again at", "Retry build"):
        assert words in page
    answer = client.post(reverse("manage:image-build", args=[image.pk]), {"go": "build"}, headers=HTMX)
    assert "is being built" in answer.content.decode()
    job = BackgroundJob.objects.latest("created_at")
    assert (job.status, job.message, job.owner) == ("RUNNING", ASKED, cast.dana)
    assert AuditEntry.objects.filter(action="image.build", actor=cast.dana).exists()
    again = client.post(reverse("manage:image-build", args=[image.pk]), {"go": "build"}, headers=HTMX)
    assert 'role="alert"' in again.content.decode()
    assert BackgroundJob.objects.running().count() == 1


def test_an_environment_of_native_sessions_needs_no_image(cast: Cast, image: Image, browse: Browse) -> None:
    client = browse(cast.dana)
    assert "No agent has image python yet" in part(client, image)
    ImageOnAgent.objects.create(agent=make_agent(), reference="process/python")
    for text in (part(client, image), client.get(reverse("manage:images")).content.decode()):
        assert "1 agent runs python without containers" in text
        assert "No agent has image" not in text and "Build image" not in text
    fail(image)
    assert "could not be built" in part(client, image)


def test_a_script_retries_a_failed_build(cast: Cast, image: Image) -> None:
    job = fail(image)
    dana = Caller(cast.dana)
    answer = dana.post(f"/api/v1/jobs/{job.pk}/retry/")
    assert (answer.status_code, answer.json()["kind"]) == (202, "image.build")
    assert dana.post(f"/api/v1/jobs/{job.pk}/retry/").status_code == 409


def test_the_page_of_jobs_offers_a_retry(cast: Cast, image: Image, browse: Browse) -> None:
    job = fail(image)
    client = browse(cast.dana)
    address = reverse("manage:job-again", args=[job.pk])
    assert address in client.get(reverse("manage:jobs")).content.decode()
    assert "A new build begins" in client.get(address).content.decode()
    client.post(address)
    assert BackgroundJob.objects.running().get().message == ASKED


def test_native_sessions_are_a_decision_with_its_price_beside_it(cast: Cast, image: Image, browse: Browse) -> None:
    fail(image)
    client = browse(cast.dana)
    assert "Run sessions without containers" not in part(client, image), "the operator chose Docker"
    fail(image, may_run_natively=True)
    page = part(client, image)
    assert "Run sessions without containers" in page
    assert "Isolation is weaker" in page
    address = reverse("manage:image-build", args=[image.pk])
    page = client.post(address, {"go": "native"}, headers=HTMX).content.decode()
    assert runs_natively()
    assert "Use containers only" in page
    launcher = browse(cast.alice).get(reverse("web:launch")).content.decode()
    assert "sessions start without a container" in launcher
    assert "Isolation is weaker" in launcher
    client.post(address, {"go": "containers"})
    assert not runs_natively()
    actions = AuditEntry.objects.filter(action__startswith="native-sessions").values_list("action", flat=True)
    assert set(actions) == {"native-sessions.allow", "native-sessions.end"}


def test_the_launcher_says_who_can_mend_a_failed_build(cast: Cast, image: Image, browse: Browse) -> None:
    fail(image)
    own = browse(cast.dana).get(reverse("web:launch")).content.decode()
    other = browse(cast.alice).get(reverse("web:launch")).content.decode()
    assert "The image python could not be built: The disk is full." in own
    assert reverse("manage:image", args=[image.pk]) in own
    assert "The image python could not be built: The disk is full." in other
    assert "Ask your administrator" in other
    assert reverse("manage:image", args=[image.pk]) not in other


def test_an_image_that_is_there_says_so_and_asks_for_nothing(cast: Cast, image: Image, browse: Browse) -> None:
    fail(image)
    ImageOnAgent.objects.create(agent=make_agent("second"), reference=image.reference)
    page = part(browse(cast.dana), image)
    assert "1 agent has image python" in page
    assert "Retry build" not in page
    assert "image-build" not in browse(cast.dana).get(reverse("manage:images")).content.decode()
