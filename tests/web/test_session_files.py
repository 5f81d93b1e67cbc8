"""Files that a launch brings: what is refused, who gets them, and when they are gone."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.base.core.errors import Conflict, UserError
from backendai.domain.accounts.models import Dotfile, User
from backendai.domain.compute.models import ComputeSession, LaunchRecord, SessionFile
from backendai.domain.compute.services.agents.kernel_specs import spec_for
from backendai.domain.compute.services.agents.node_view import WorkRequest, work_for_each
from backendai.domain.compute.services.launching.create import create_session
from backendai.domain.compute.services.launching.purging import purge_user
from backendai.domain.compute.services.requests.session_files import MOST_FILE_BYTES
from backendai.domain.compute.spec import LaunchFile, SessionSpec
from backendai.portal.web.launch.fields.file_fields import PARTS
from tests.api.callers import LAUNCH, SESSIONS, Caller
from tests.cast import Cast
from tests.effort import some
from tests.factories import make_agent, make_group, make_image, make_session, place
from tests.pages import markup
from tests.web.conftest import HTMX

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
TRAIN = LaunchFile("train.py", "print('trained')\n")
RUN = LaunchFile("run.sh", "#!/bin/sh\necho ran\n")
BATCH = {"session_type": "batch", "startup_command": "python train.py"}


@pytest.fixture
def site(cast: Cast) -> Cast:
    make_group()
    make_image()
    make_agent()
    return cast


def typed(cast: Cast, **over: Any) -> dict[str, Any]:
    plain = {"image": "python", "name": "with-files", "project": str(cast.project.pk), "resource_group": "default"}
    return plain | {"preset": "", "cpu": "1", "mem": "1g"} | BATCH | over


def brought(*files: LaunchFile) -> dict[str, list[str]]:
    """Return the rows of the form for these files."""
    return {
        "files.path": [file.path for file in files],
        "files.bytes": [str(file.size) for file in files],
        "files.content": [file.content for file in files],
    }


@some(
    ("files", "code"),
    [
        ([LaunchFile("../up.py", "")], "invalid-path"),
        ([LaunchFile("/etc/passwd", "")], "invalid-path"),
        ([LaunchFile(".bootstrap.sh", "")], "reserved-path"),
        ([LaunchFile(".ssh/authorized_keys", "")], "reserved-path"),
        ([TRAIN, TRAIN], "path-taken"),
        ([LaunchFile("a", ""), LaunchFile("a/b", "")], "path-taken"),
        ([LaunchFile("nul.txt", "a\0b")], "not-text"),
        ([LaunchFile("big.txt", "é" * (MOST_FILE_BYTES // 2 + 1))], "files-too-large"),
        ([LaunchFile(f"{number}.txt", "") for number in range(11)], "too-many-files"),
    ],
)
def test_what_cannot_be_written_is_refused_and_nothing_is_launched(
    site: Cast, files: list[LaunchFile], code: str
) -> None:
    with pytest.raises(UserError) as caught:
        create_session(site.alice, SessionSpec(image="python", files=files))
    assert (caught.value.field, caught.value.code) == ("files", code)
    assert not ComputeSession.objects.exists()


@pytest.mark.parametrize("kernels", [1, 2])
def test_every_kernel_finds_them_in_its_home_before_the_usual_files(
    site: Cast, kernels: int, django_assert_num_queries: Any
) -> None:
    Dotfile.objects.create(user=site.alice, path="train.py", content="usual")
    Dotfile.objects.create(user=site.alice, path=".vimrc", content="set number")
    agent = make_agent()
    session = make_session(site.alice, files=[TRAIN, RUN], cluster_size=kernels)
    place(session, agent)
    for_fleets = {spec.kernel_id: spec for spec in work_for_each([WorkRequest(agent)])[0].start}
    for kernel in session.kernels.all():
        with django_assert_num_queries(3 + kernels):
            spec = spec_for(agent, kernel.pk)
        assert spec == for_fleets[kernel.pk]
        found = {file.path: (file.content, file.mode) for file in spec.files}
        assert found == {
            "train.py": (TRAIN.content, 0o644),
            "run.sh": (RUN.content, 0o755),
            ".vimrc": ("set number", 0o644),
        }
        assert "trained" not in repr(spec)


def test_they_are_deleted_with_their_session_and_with_their_owner(site: Cast) -> None:
    create_session(site.alice, SessionSpec(image="python", name="first", files=[TRAIN])).delete()
    assert not SessionFile.objects.exists()
    create_session(site.bob, SessionSpec(image="python", name="other", files=[TRAIN]))
    ComputeSession.objects.update(status="TERMINATED")
    User.objects.filter(pk=site.bob.pk).update(is_active=False)
    site.bob.refresh_from_db()
    purge_user(site.dana, site.bob, typed=site.bob.email, now=timezone.now())
    assert ComputeSession.objects.exists() and not SessionFile.objects.exists()


def test_another_text_is_another_request(site: Cast) -> None:
    asked = {"image": "python", "name": "same"}
    first = create_session(site.alice, SessionSpec(**asked, files=[TRAIN]), idempotency_key="k")
    assert create_session(site.alice, SessionSpec(**asked, files=[TRAIN]), idempotency_key="k") == first
    with pytest.raises(Conflict):
        create_session(site.alice, SessionSpec(**asked, files=[RUN]), idempotency_key="k")


def test_rest_takes_them_and_names_what_is_wrong(site: Cast) -> None:
    alice = Caller(site.alice)
    body = LAUNCH | {"type": "batch", "startup_command": "bash run.sh"}
    answer = alice.post(SESSIONS, body | {"files": [{"path": "job/run.sh", "content": RUN.content}]})
    assert answer.status_code == 201, answer.content
    assert "echo ran" not in markup(answer)
    assert list(SessionFile.objects.values_list("path", "content")) == [("job/run.sh", RUN.content)]
    refused = alice.post(SESSIONS, body | {"files": [{"path": "/run.sh", "content": ""}]}).json()
    assert (refused["code"], refused["field"]) == ("invalid-path", "files")


def test_the_form_brings_what_was_chosen_and_only_to_a_batch_session(site: Cast, browse: Browse) -> None:
    client = browse(site.alice)
    windows = LaunchFile("train.py", "print('trained')\r\n")
    assert client.post(reverse("web:launch"), typed(site, **brought(windows))).status_code == 302
    assert SessionFile.objects.get().content == TRAIN.content, "lines end as a shell reads them"
    other = typed(site, name="other", session_type="interactive", **brought(LaunchFile("/x", "")))
    assert client.post(reverse("web:launch"), other).status_code == 302
    assert SessionFile.objects.count() == 1


def test_without_scripts_a_file_is_sent_kept_by_the_review_and_run_by_a_suggested_command(
    site: Cast, browse: Browse
) -> None:
    client = browse(site.alice)
    upload = SimpleUploadedFile("my train (1).py", b"\xef\xbb\xbfprint('<hi>')\r\n")
    seen = client.post(reverse("web:launch"), typed(site, startup_command="", go="review", upload=upload))
    assert seen.status_code == 200
    form = seen.context["form"]
    assert form["startup_command"].value() == "python ~/my_train_1_.py"
    assert "\nprint(&#x27;&lt;hi&gt;&#x27;)\n</textarea>" in seen.content.decode()
    rows = form.file_rows()
    sent = {f"files.{part}": [getattr(row, name) for row in rows] for part, name in PARTS.items()}
    assert client.post(reverse("web:launch"), typed(site, startup_command="sh x", **sent)).status_code == 302
    assert list(SessionFile.objects.values_list("path", "content")) == [("my_train_1_.py", "print('<hi>')\n")]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("data.bin", b"\xff\xfe", "data.bin is not a text file in UTF-8."),
        ("nul.txt", b"a\0b", "nul.txt is not a text file in UTF-8."),
        ("big.txt", b"a" * (MOST_FILE_BYTES + 1), "a session takes at most 256 KiB."),
    ],
)
def test_what_is_no_small_text_is_refused_at_the_field(
    site: Cast, browse: Browse, name: str, content: bytes, said: str
) -> None:
    asked = typed(site, upload=SimpleUploadedFile(name, content))
    answer = browse(site.alice).post(reverse("web:launch"), asked)
    assert answer.status_code == 422
    assert said in markup(answer).split('id="id_files_error"')[1]
    assert not ComputeSession.objects.exists()


def test_the_line_at_the_foot_knows_their_sizes_without_their_texts(site: Cast, browse: Browse) -> None:
    client = browse(site.alice)
    rows = {"files.path": ["a.txt"], "files.bytes": [str(MOST_FILE_BYTES + 1)]}
    page = markup(client.post(reverse("web:launch_preview"), typed(site, **rows), **HTMX))
    assert 'data-fault="files">The files have 256 KiB; a session takes at most' in page
    fine = client.post(reverse("web:launch_preview"), typed(site, **rows | {"files.bytes": ["5"]}), **HTMX)
    assert "<strong>Starts " in markup(fine)


def test_an_address_knows_their_names_alone(site: Cast, browse: Browse) -> None:
    asked = BATCH | {"files.path": ["train.py"], "files.content": ["import os"], "step": "5"}
    answer = browse(site.alice).get(reverse("web:launch"), asked)
    page = markup(answer)
    assert "import os" not in page
    assert "Files are not kept in the address: choose train.py again." in page


def test_a_recent_launch_finds_them_again_for_its_owner_alone(site: Cast, browse: Browse) -> None:
    client = browse(site.alice)
    client.post(reverse("web:launch"), typed(site, **brought(TRAIN)))
    record, session = LaunchRecord.objects.get(), ComputeSession.objects.get()
    assert "trained" not in json.dumps(record.parameters)
    for asked in ({"recent": str(record.pk)}, {"like": str(session.pk)}):
        page = client.get(reverse("web:launch"), asked)
        assert [row.content for row in page.context["form"].file_rows()] == [TRAIN.content], asked
        assert "trained" not in page.context["usual"]
        assert "trained" not in markup(browse(site.dana).get(reverse("web:launch"), asked))
    session.delete()
    again = markup(client.get(reverse("web:launch"), {"recent": str(record.pk)}))
    assert "choose train.py again" in again
