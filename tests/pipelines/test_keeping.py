"""What is kept of a run: secrets sealed and deleted in time, documents that can be copied, and for how long."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.conf import LazySettings
from django.test import Client
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.base.core.written_documents import read_document
from backendai.domain.accounts.models import KeyPair, User
from backendai.domain.compute.models import ComputeSession, SessionFile
from backendai.domain.compute.services.launching.purging import purge_user
from backendai.domain.compute.services.launching.recent import recent_launches
from backendai.domain.compute.spec import SessionSpec
from backendai.domain.pipelines.comparing import differences
from backendai.domain.pipelines.documents.stored import copied_text
from backendai.domain.pipelines.models import Attempt, Edge, Run, Status, Step, Task
from backendai.domain.pipelines.services.changing import retry_failed
from backendai.domain.pipelines.services.creating import RunSpec, array_of, create_run
from backendai.domain.templates.models import Template
from backendai.domain.templates.services.publishing import TemplateDraft, create_template
from backendai.portal.loops.loops import run_pipelines
from backendai.portal.loops.repair.retention import delete_expired
from tests.cast import Cast
from tests.effort import some
from tests.factories import make_agent, make_group, make_image
from tests.pipelines.world import ARRAY, launch, launch_text, pending, play

pytestmark = pytest.mark.django_db
TEXT = """\
steps:
  one:
    image: python
    resources: {cpu: 1, mem: 512m}
    startup_command: "true"
    environ: {API_KEY: abc123, LR: "0.1"}
  two:
    after: [one]
    image: python
    resources: {cpu: 1, mem: 512m}
    startup_command: "true"
    environ: {API_KEY: abc123, DB: "postgres://me:hunter2@db/x"}
"""


def environ_of(run: Run, step: str) -> dict[str, str]:
    found: dict[str, str] = ComputeSession.objects.filter(run_id=run.pk, environ__BACKENDAI_STEP=step)[0].environ
    return found


def test_secrets_of_steps_lie_sealed_and_go_with_success(cast: Cast) -> None:
    run = launch_text(cast.alice, TEXT)
    stored = str(list(Step.objects.values("request", "secrets")))
    assert "abc123" not in stored and "hunter2" not in stored
    play(run, lambda session: "task-failed" if session.environ["BACKENDAI_STEP"] == "two" else "task-finished")
    assert environ_of(run, "one")["API_KEY"] == "abc123" and environ_of(run, "two")["DB"].endswith("@db/x")
    retry_failed(run, cast.alice, now=timezone.now())
    assert play(run).status == Status.SUCCEEDED
    assert [sorted(one) for step in Step.objects.all() for one in step.secrets.values()] == [["digest"]] * 3
    other = launch_text(cast.alice, TEXT.replace("hunter2", "hunter3"))
    told = {one.where: (one.before, one.now) for one in differences(other, run)}
    assert told["steps.two.environ.DB"] == ("••••", "••••") and "steps.two.environ.API_KEY" not in told


def test_a_copy_asks_for_the_secrets_that_are_not_kept(cast: Cast) -> None:
    run = launch_text(cast.alice, TEXT)
    assert "abc123" not in run.text and "hunter2" not in run.text
    with pytest.raises(UserError) as caught:
        create_run(cast.alice, RunSpec(text=run.text), now=timezone.now())
    assert caught.value.code == "missing-parameter" and caught.value.field == "parameters.api_key"
    asked = read_document(run.text).value["params"]
    assert {name: one["title"] for name, one in asked.items()} == {"api_key": "API_KEY", "db_secret": "DB"}
    again = launch_text(cast.alice, run.text, api_key="new", db_secret="dsn")
    play(again)
    assert environ_of(again, "two")["API_KEY"] == "new" and environ_of(again, "two")["DB"] == "dsn"


def test_contents_of_files_lie_sealed_and_a_copy_brings_them(alice: Client, cast: Cast) -> None:
    step = {"image": "python", "resources": {"cpu": 1, "mem": "512m"}, "startup_command": "python a.py"}
    own, usual = {"path": "a.py", "content": "print('own')"}, {"path": "a.py", "content": "print('usual')"}
    steps = {"one": {**step, "files": [own]}, "two": {**step, "after": ["one"]}}
    run = launch(cast.alice, defaults={"files": [usual]}, steps=steps)
    stored = str([list(Step.objects.values("request", "secrets")), run.text])
    assert "print" not in stored and stored.count("a.py") >= 4
    assert play(run).status == Status.SUCCEEDED
    brought = SessionFile.objects.order_by("session__created_at").values_list("content", flat=True)
    assert list(brought) == [own["content"], usual["content"]]
    text = alice.get(f"/runs/{run.pk}/copy/", follow=True).context["form"]["text"].value()
    said = read_document(text).value
    assert (said["defaults"]["files"], said["steps"]["one"]["files"]) == ([usual], [own]) and "files" not in said[
        "steps"
    ]["two"]
    changed = launch(cast.alice, defaults={"files": [usual]}, steps=steps | {"one": {**step, "files": [usual]}})
    told = {one.where: (one.before, one.now) for one in differences(changed, run)}
    assert told == {"steps.one.files.a.py": ("••••", "••••")}


def test_a_copy_brings_each_file_to_its_place_whatever_it_is_called(cast: Cast) -> None:
    step = {"image": "python", "resources": {"cpu": 1, "mem": "512m"}, "startup_command": "python a.py"}
    own, usual = [{"path": "${{ params.name }}.py", "content": "own"}], [{"path": "a.py", "content": "usual"}]
    steps = {"defaults": {**step, "files": own}, "two": step}
    said = {"params": {"name": {"default": "a"}}, "defaults": {"files": usual}, "steps": steps}
    run = launch(cast.alice, **said, **{"finally": {**step, "files": [*usual, {"path": "empty", "content": ""}]}})
    copy = read_document(copied_text(run)).value
    assert (copy["defaults"]["files"], copy["steps"]["defaults"]["files"]) == (usual, own)
    assert [one["content"] for one in copy["finally"]["files"]] == ["usual", ""]


def test_contents_that_look_like_gaps_lie_sealed_too(cast: Cast) -> None:
    file = {"path": ".github/ci.yml", "content": "run: ${{ secrets.TOKEN }} hunter2"}
    run = launch(cast.alice, **ARRAY, array=2, files=[file])
    assert "hunter2" not in run.text and "hunter2" not in str(list(Step.objects.values("request")))
    assert read_document(copied_text(run)).value["files"] == [file]


def test_documents_larger_than_a_text_of_a_person_are_copied(alice: Client, cast: Cast) -> None:
    many = {"matrix": {"lr": [f"{number}{'x' * 990}" for number in range(300)]}}
    large = launch(cast.alice, **ARRAY, **many)
    copy = alice.get(f"/runs/{large.pk}/copy/", follow=True).context["form"]
    assert copy["matrix"].value() == f"lr = {', '.join(many['matrix']['lr'])}"
    Run.objects.filter(pk=large.pk).update(text=f"matrix: {{lr: [{'9' * 30}]}}")
    unreadable = alice.get(f"/runs/{large.pk}/copy/", follow=True).context["form"]
    assert "9999" in unreadable["text"].value(), "the person sees it, and what is wrong with it on launching"
    pipeline = launch(cast.alice, steps={"one": {**ARRAY, **many}})
    for address in ("/runs/new/?like=", "/templates/new/?run="):
        assert len(alice.get(f"{address}{pipeline.pk}").context["form"]["text"].value()) > 300_000


def test_an_array_without_the_value_of_a_variable_is_refused(cast: Cast) -> None:
    run = launch(cast.alice, **ARRAY, array=2, environ={"API_KEY": "abc123"})
    with pytest.raises(UserError, match="API_KEY has no value"):
        create_run(cast.alice, RunSpec(text=run.text), now=timezone.now())


def test_amounts_grow_by_failures_of_the_program_alone_and_to_the_largest_agent(cast: Cast) -> None:
    make_agent(cpu=8, mem="3g")
    now = timezone.now()
    run = launch(cast.alice, now, **ARRAY, array=1, retry={"times": 4, "more": {"mem": 4}})
    sizes = []

    def verdict(session: ComputeSession) -> str:
        sizes.append(int(session.slots["mem"]) // 2**20)
        return ["agent-lost", "out-of-memory", "out-of-memory", "out-of-memory", "out-of-memory"][len(sizes) - 1]

    play(run, verdict, now=now)
    assert sizes == [512, 512, 2048, 3072, 3072], "a lost agent is no fault of the program, and 3 GiB is all there is"
    assert run.status == Status.FAILED
    retry_failed(run, cast.alice, now=timezone.now())
    run_pipelines(timezone.now() + timedelta(seconds=2))
    assert pending(run)[0].slots["mem"] == str(3 * 2**30), "a person's retry asks for what the last try had"


def test_an_array_counts_for_the_key_pair_that_asked(cast: Cast) -> None:
    make_group()
    make_image()
    pair = KeyPair.objects.create(user=cast.alice, name="second")
    spec = SessionSpec(image="python", session_type="batch", startup_command="x", access_key=pair.access_key)
    run = create_run(cast.alice, array_of(spec, 2), now=timezone.now())[0]
    run_pipelines(timezone.now())
    assert {one.access_key for one in pending(run)} == {pair.access_key}


def test_old_runs_are_deleted_whole(cast: Cast, settings: LazySettings) -> None:
    old, young, live = (launch_text(cast.alice, TEXT) for _ in range(3))
    play(old)
    play(young)
    settings.KEEP_RUNS = timedelta(days=30)
    Run.objects.filter(pk=old.pk).update(ended_at=timezone.now() - timedelta(days=31))
    Run.objects.filter(pk=live.pk).update(ended_at=None)
    sessions = ComputeSession.objects.count()
    delete_expired(timezone.now())
    assert set(Run.objects.values_list("pk", flat=True)) == {young.pk, live.pk}
    rows = (Step.objects.count(), Task.objects.count(), Edge.objects.count())
    assert rows == (4, 4, 2) and not Attempt.objects.filter(task__step__run=old.pk).exists()
    assert ComputeSession.objects.count() == sessions
    settings.KEEP_RUNS = timedelta(0)
    Run.objects.filter(pk=young.pk).update(ended_at=timezone.now() - timedelta(days=9999))
    delete_expired(timezone.now())
    assert Run.objects.filter(pk=young.pk).exists()


def test_a_purged_person_leaves_no_run_and_no_private_template(cast: Cast) -> None:
    launch_text(cast.alice, TEXT)
    create_template(cast.alice, TemplateDraft("mine"), "image: python\n", now=timezone.now())
    User.objects.filter(pk=cast.alice.pk).update(is_active=False)
    cast.alice.refresh_from_db()
    purge_user(cast.dana, cast.alice, typed=cast.alice.email, now=timezone.now())
    assert not Run.objects.exists() and not Step.objects.exists() and not Template.objects.exists()


@pytest.fixture
def alice(cast: Cast) -> Client:
    make_agent(cpu=32, mem="32g")
    make_image()
    client = Client()
    client.force_login(cast.alice)
    return client


def sent(form: Any) -> dict[str, Any]:
    return {name: form.data.getlist(name) for name in form.data}


def typed(cast: Cast, **over: Any) -> dict[str, Any]:
    values = {"image": "python", "name": "sweep", "session_type": "batch", "project": str(cast.project.pk)}
    more = {"resource_group": "default", "preset": "", "cpu": "1", "mem": "1g", "startup_command": "run"}
    files = {"files.path": ["a.py"], "files.bytes": ["8"], "files.content": ["print(1)"]}
    return values | more | files | {"environ.name": ["API_KEY"], "environ.value": ["abc123"]} | over


def test_an_array_is_in_the_recent_history_and_can_be_copied(alice: Client, cast: Cast) -> None:
    form = typed(cast, array_size="3", retries="2", request_key="once")
    assert {alice.post("/sessions/new/", form).status_code for _ in range(2)} == {302}
    run, (record,) = Run.objects.get(), recent_launches(cast.alice)
    assert (record.name, record.document["array_size"], record.document["retries"]) == ("sweep", 3, 2)
    assert "abc123" not in str(record.document)
    again = alice.get("/sessions/new/", {"recent": str(record.pk)}).context["form"]
    assert (again["array_size"].value(), again["retries"].value()) == ("3", "2")
    assert [row.content for row in again["files"].value()] == ["print(1)"]
    copy = alice.get(f"/runs/{run.pk}/copy/", follow=True).context["form"]
    assert (copy["array_size"].value(), copy["retries"].value(), copy["name"].value()) == (3, 2, "sweep")
    assert dict(copy["environ"].value()) == {"API_KEY": "abc123"} and copy["startup_command"].value() == "run"


MATRIX = "lr = 0.1, 0.01\r\nseed = 1, 2, 3\r\n"


def test_an_array_of_values_is_launched_from_the_form_kept_and_copied(alice: Client, cast: Cast) -> None:
    form = typed(cast, matrix=MATRIX, request_key="once")
    looked = alice.post("/sessions/new/", form | {"go": "review"})
    assert "6 elements" in looked.content.decode()
    assert alice.post("/sessions/new/", form).status_code == 302
    run, (record,) = Run.objects.get(), recent_launches(cast.alice)
    assert (run.kind, run.size) == ("array", 6)
    run_pipelines(timezone.now())
    pairs = {(one.environ["PARAM_LR"], one.environ["PARAM_SEED"]) for one in pending(run)}
    assert pairs == {(lr, seed) for lr in ("0.1", "0.01") for seed in "123"}
    lines = "lr = 0.1, 0.01\nseed = 1, 2, 3"
    assert alice.get("/sessions/new/", {"recent": str(record.pk)}).context["form"]["matrix"].value() == lines
    copy = alice.get(f"/runs/{run.pk}/copy/", follow=True).context["form"]
    assert (copy["matrix"].value(), copy["array_size"].value()) == (lines, None)


@some(
    ("matrix", "array_size", "field", "says"),
    [
        ("lr 0.1", "", "matrix", "Line 1: write a name and its values"),
        ("lr = 1\nseed = 1,,2", "", "matrix", "Line 2: a value of seed is empty"),
        ("lr = 1\nlr = 2", "", "matrix", "Line 2: lr is listed twice"),
        ("LR = 1", "", "matrix", "LR: A value is named in small letters"),
        (
            f"a = {', '.join(map(str, range(101)))}\nb = {', '.join(map(str, range(100)))}",
            "",
            "matrix",
            "10100 elements",
        ),
        ("lr = 1, 2", "3", "array_size", "clear the array size, or the values"),
    ],
    2,
)
def test_values_that_make_no_array_are_refused_at_their_field(
    alice: Client, cast: Cast, matrix: str, array_size: str, field: str, says: str
) -> None:
    answer = alice.post("/sessions/new/", typed(cast, matrix=matrix, array_size=array_size))
    assert answer.status_code == 422 and not Run.objects.exists()
    assert says in str(answer.context["form"].errors[field]), answer.context["form"].errors
    assert answer.context["steps"][0].is_wrong, "the fault stands on the step of its field"


def test_an_array_with_values_that_the_form_cannot_say_is_copied_as_its_document(alice: Client, cast: Cast) -> None:
    run = launch(cast.alice, **ARRAY, matrix={"lr": [1, 2], "exclude": [{"lr": 2}]})
    page = alice.get(f"/runs/{run.pk}/copy/", follow=True)
    assert "matrix" in page.context["form"]["text"].value()


def test_a_kept_document_of_an_earlier_release_is_copied_with_its_parameters(alice: Client, cast: Cast) -> None:
    run = launch_text(cast.alice, TEXT)
    Run.objects.filter(pk=run.pk).update(text=TEXT.replace("abc123", "null"))
    text = alice.get(f"/runs/{run.pk}/copy/", follow=True).context["form"]["text"].value()
    assert "${{ params.api_key }}" in text and "null" not in text
