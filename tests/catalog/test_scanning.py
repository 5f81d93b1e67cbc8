"""Looking through registries: what they have comes in, and what they may not do they cannot do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.utils import timezone

from backendai.base.core.errors import Conflict, UserError
from backendai.domain.activity.jobs import cancel_job
from backendai.domain.activity.models import AuditEntry, BackgroundJob
from backendai.domain.catalog import registry_client, scanning
from backendai.domain.catalog.models import Image, Registry
from backendai.domain.catalog.registries import delete_registry, start_scan, write_registry
from backendai.domain.catalog.scanning import scan, waiting_scans
from backendai.portal.loops import scans
from tests.cast import Cast
from tests.catalog.fake_registry import ACCOUNT, FakeRegistry, serving
from tests.factories import make_image

pytestmark = pytest.mark.django_db
OURS = {"ai.backend.kernelspec": "1", "ai.backend.resource.min.cpu": "2"}


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with serving(FakeRegistry()) as registry:
        yield registry


def make(fake: FakeRegistry, **over: Any) -> Registry:
    return write_registry(None, Registry(), {"name": "lab", "url": f"http://{fake.address}"} | over)


def run(cast: Cast, registry: Registry) -> BackgroundJob:
    job = start_scan(cast.dana, registry, now=timezone.now())
    scan(job.pk, timezone.now)
    job.refresh_from_db()
    return job


def test_it_takes_every_page_of_repositories_and_tags_into_the_catalogue(cast: Cast, fake: FakeRegistry) -> None:
    digest = fake.image(OURS, size=2**30)
    for repository in ("a/one", "a/two", "b/three"):
        for tag in ("1", "2", "3"):
            fake.tag(repository, tag, digest)
    job = run(cast, make(fake))
    assert (job.status, job.message) == ("DONE", "9 images, 9 of them new, 0 with another digest.")
    image = Image.objects.get(reference=f"{fake.address}/a/one:2")
    assert (image.name, image.digest, image.is_enabled, image.architecture) == ("one:2", digest, False, "x86_64")
    assert (image.size_bytes, image.minimum) == (2**30 + 24, {"cpu": "2"})
    assert image.registry and image.registry.scanned_at
    changed = fake.image(OURS, size=7)
    fake.tag("a/one", "2", changed)
    job = run(cast, make(fake, name="again", projects="a", enables_new=True))
    assert job.message == "6 images, 0 of them new, 1 with another digest."
    image.refresh_from_db()
    assert image.digest == changed


def test_an_index_is_pinned_whole_and_has_the_architecture_only_when_there_is_one(
    cast: Cast, fake: FakeRegistry
) -> None:
    amd, arm = fake.image(OURS), fake.image(OURS, "arm64")
    both, one = fake.index(("amd64", amd), ("arm64", arm)), fake.index(("arm64", arm))
    fake.tag("r", "both", both)
    fake.tag("r", "one", one)
    run(cast, make(fake))
    found = {image.name: (image.digest, image.architecture) for image in Image.objects.all()}
    assert found == {"r:both": (both, ""), "r:one": (one, "aarch64")}


def test_the_account_gets_a_token_for_each_scope_and_goes_nowhere_else(cast: Cast, fake: FakeRegistry) -> None:
    fake.wants_token = True
    fake.tag("r", "1", fake.image(OURS))
    registry = make(fake, username=ACCOUNT[0], password=ACCOUNT[1])
    assert run(cast, registry).status == "DONE"
    basic = [path for path, authorization in fake.asked if authorization.startswith("Basic")]
    assert basic and all(path.startswith("/token?") for path in basic)
    assert ACCOUNT[1] not in registry.sealed_password and registry.password == ACCOUNT[1]
    wrong = run(cast, make(fake, name="wrong", username="robot", password="no"))
    assert (wrong.status, wrong.fix[:5]) == ("FAILED", "Check")
    assert "issued no token" in wrong.message
    assert ACCOUNT[1] not in str(list(AuditEntry.objects.values_list("details", flat=True)))


def test_a_token_or_a_blob_on_a_host_that_nobody_named_is_not_fetched(cast: Cast, fake: FakeRegistry) -> None:
    fake.tag("r", "1", fake.image(OURS))
    with serving(FakeRegistry()) as elsewhere:
        elsewhere.files = fake.files
        config = next(digest for digest, (kind, _) in fake.files.items() if kind == "application/json")
        fake.wants_token = True
        fake.moved[f"/v2/r/blobs/{config}"] = f"http://{elsewhere.address}/v2/r/blobs/{config}"
        account = {"username": ACCOUNT[0], "password": ACCOUNT[1]}
        job = run(cast, make(fake, **account))
        assert "additional hosts" in job.result["parts"][0]["message"]
        assert not elsewhere.asked and not Image.objects.exists()
        job = run(cast, make(fake, name="named", other_hosts=elsewhere.address, **account))
        assert (job.status, job.result["new"]) == ("DONE", 1)
        assert [authorization for _, authorization in elsewhere.asked] == [""], "no credentials go there"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (b"not json", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"config": {"digest": "../../etc"}}', "type that is not supported"),
        (b'{"manifests": [{"platform": {"os": "windows"}}]}', "systems other than Linux"),
    ],
)
def test_what_makes_no_sense_is_told_and_the_rest_goes_on(
    cast: Cast, fake: FakeRegistry, damage: bytes, words: str
) -> None:
    fake.tag("r", "bad", fake.put("application/json", damage))
    fake.tag("r", "good", fake.image({}))
    job = run(cast, make(fake))
    assert (job.status, job.result["new"]) == ("DONE", 1)
    assert job.result["parts"][0]["name"] == "r:bad" and words in job.result["parts"][0]["message"]


def test_content_that_does_not_fit_its_digest_or_is_too_long_is_refused(
    cast: Cast, fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = fake.image(OURS)
    fake.tag("r", "1", digest)
    config = next(one for one, (kind, _) in fake.files.items() if kind == "application/json")
    fake.files[config] = ("application/json", b'{"architecture": "forged"}')
    assert "does not match its digest" in run(cast, make(fake)).result["parts"][0]["message"]
    monkeypatch.setattr(registry_client, "LARGEST_ANSWER", 20)
    assert run(cast, make(fake, name="small")).status == "FAILED"
    assert not Image.objects.exists()


def test_limits_and_a_cancel_end_it(cast: Cast, fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    for tag in "abcdef":
        fake.tag("r", tag, fake.image(OURS))
    monkeypatch.setattr(scanning, "MOST_TAGS", 3)
    job = run(cast, make(fake))
    assert job.result["seen"] == 3 and "first 3 tags" in job.result["parts"][0]["message"]
    monkeypatch.setattr(scanning, "MOST_TAGS", 99)
    job = start_scan(cast.dana, make(fake, name="cancelled"), now=timezone.now())
    cancel_job(cast.dana, job.pk, now=timezone.now())
    scan(job.pk, timezone.now)
    job.refresh_from_db()
    assert (job.status, job.result["seen"]) == ("CANCELLED", 0)


def test_one_scan_at_a_time_and_a_lost_hint_is_sent_again(
    cast: Cast, fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    hints: list[Any] = []
    monkeypatch.setattr(scans, "hint", lambda *args, **_: hints.append(args))
    registry = make(fake)
    job = start_scan(cast.dana, registry, now=timezone.now())
    with pytest.raises(Conflict, match="is already running"):
        start_scan(cast.dana, registry, now=timezone.now())
    scans.request_scans(timezone.now())
    assert hints == [("controller.scan_registry", str(job.pk))]
    scan(job.pk, timezone.now)
    asked = len(fake.asked)
    scan(job.pk, timezone.now)
    assert waiting_scans() == [] and len(fake.asked) == asked, "done once"
    write_registry(None, registry, {"is_enabled": False})
    with pytest.raises(Conflict, match="disabled"):
        start_scan(cast.dana, registry, now=timezone.now())


@pytest.mark.parametrize(
    "url",
    ["ftp://a", "https://a/path", "https://user:pw@a", "https://a?x", "a", "https://", "https://a b", "file:///etc"],
)
def test_it_takes_no_address_but_a_host(url: str) -> None:
    with pytest.raises(UserError) as raised:
        write_registry(None, Registry(), {"name": "lab", "url": url})
    assert raised.value.field == "url"


def test_its_images_are_open_to_the_domains_that_it_names(cast: Cast) -> None:
    registry = Registry.objects.create(name="closed", url="https://cr.example.org", is_global=False)
    make_image("python", registry=registry)
    assert not Image.objects.visible_to(cast.alice).exists()
    with pytest.raises(Conflict, match="1 images are limited"):
        delete_registry(None, registry)
    registry.domains.add(cast.alice.domain)
    assert Image.objects.visible_to(cast.alice).exists()
    assert not Image.objects.visible_to(cast.charlie).exists()
    assert not Image.objects.usable_in(cast.elsewhere.domain_id).exists()
    write_registry(None, registry, {"is_global": True})
    delete_registry(None, registry)
    assert Image.objects.visible_to(cast.charlie).exists()
