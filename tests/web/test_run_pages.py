"""The pages of runs: launched from the form, looked at, repaired."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backendai.base.core.messages import Message
from backendai.domain.catalog.models import Image
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.services.status.moves import StatusCause, move, move_kernels
from backendai.domain.compute.status import Phase
from backendai.domain.compute.status import Status as SessionStatus
from backendai.domain.pipelines.models import Run, Status, Step
from backendai.domain.storage.models import Folder
from backendai.domain.storage.services import create_folder
from backendai.portal.loops.group_pass import schedule
from backendai.portal.loops.loops import run_pipelines
from backendai.portal.web.pipelines.examples import EXAMPLES
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_image, make_running_session
from tests.pages import markup
from tests.pipelines.world import ARRAY, launch, launch_text, pending, play
from tests.storage.fake_file_server import FakeFileServer, make_host, serving

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice(cast: Cast) -> Client:
    make_group()
    make_image()
    client = Client()
    client.force_login(cast.alice)
    return client


def text_of(client: Client, address: str, **query: Any) -> str:
    answer = client.get(address, query)
    assert answer.status_code == 200, answer.content[:500]
    return markup(answer)


def test_a_run_is_one_row_of_the_list_and_opens_into_its_page(alice: Client, cast: Cast) -> None:
    run = launch(cast.alice, **ARRAY, name="sweep", array=30)
    run_pipelines(timezone.now())
    page = text_of(alice, "/")
    assert f"/runs/{run.pk}/" in page and "sweep-7" not in page
    shown = text_of(alice, f"/runs/{run.pk}/", index="7")
    assert shown.count('class="cell ') == 30 and "sweep-7" in shown
    play(run, lambda one: "task-failed" if one.name == "sweep-7" else "task-finished")
    board = alice.get(f"/runs/{run.pk}/board/")
    assert board.status_code == 286, "the page asks no more"
    assert "Retry failed" in markup(board) and "Pause" not in markup(board)
    assert "29" in text_of(alice, "/", view="finished")
    assert alice.get("/").context["numbers"].ended == ComputeSession.objects.count()
    assert "No session is running" in text_of(alice, "/"), "the sessions of the run were not nothing"
    Kernel.objects.filter(session__name="sweep-7").update(started_at=timezone.now(), exit_code=3)
    failures = text_of(alice, f"/runs/{run.pk}/failures/")
    assert "The batch program failed." in failures and "The program printed nothing." in failures
    assert "sweep" in text_of(alice, "/notifications/") and "29" in text_of(alice, "/notifications/")
    assert alice.post(f"/runs/{run.pk}/retry/").status_code == 302
    assert play(run).status == Status.SUCCEEDED
    assert alice.post(f"/runs/{run.pk}/pause/").status_code == 409


def test_the_page_of_a_failed_pipeline_opens_at_the_step_that_failed(alice: Client, cast: Cast) -> None:
    step = {"image": "python", "resources": {"cpu": 1, "mem": "512m"}, "startup_command": "true"}
    rates = {"after": ["good"], "matrix": {"rate": [0.1, 0.2]}}
    steps = {"good": step, "bad": step | rates, "last": step | {"after": ["bad"]}}
    run = launch(cast.alice, kind="pipeline", steps=steps)
    address = f"/runs/{run.pk}/"
    assert "Elements of step good" in text_of(alice, address)
    play(run, lambda one: "task-failed" if one.name.endswith("bad-1") else "task-finished")
    assert "Elements of step bad" in text_of(alice, address)
    failures = text_of(alice, f"{address}failures/")
    assert "<bdi>0.2</bdi>" in failures and "<bdi>0.1</bdi>" not in failures
    assert "Elements of step last" in text_of(alice, address, step="last")


def test_a_run_waits_while_none_of_its_elements_runs_and_says_why(alice: Client, cast: Cast) -> None:
    agent = make_agent("node-1", cpu=2)
    make_running_session(cast.bob, agent, resources={"cpu": 2})
    run = launch(cast.alice, **ARRAY, name="sweep", array=70)
    address = f"/runs/{run.pk}/"
    run_pipelines(timezone.now())
    schedule(make_group(), timezone.now())
    tabs = alice.get("/").context["tabs"]
    assert [(tab.kind, tab.number) for tab in tabs] == [("", 64), ("interactive", 0), ("batch", 64)]
    assert "sweep" not in text_of(alice, "/", type="interactive")
    assert alice.get("/").context["page"].paginator.count == 0, "they have one row, that of the run"
    for page in (
        text_of(alice, address),
        text_of(alice, "/runs/"),
        text_of(alice, "/"),
        text_of(alice, "/", type="batch"),
    ):
        assert ">Waiting</" in page and "64 queued" in page and "6 waiting" in page
        assert "64 launched" not in page and ">Running</" not in page
        assert "No agent has room for 1 CPU core, 512 MiB of memory now: node-1 comes closest" in page
    seen = alice.get(f"{address}board/").context["mark"]
    move(ComputeSession.objects.filter(run_id=run.pk).values_list("pk", flat=True)[:1], SessionStatus.SCHEDULED,
         StatusCause(Phase.START), now=timezone.now())  # fmt: skip
    board = alice.get(f"{address}board/", {"seen": seen})
    assert board.status_code == 200, "the version of the run has not changed"
    page = markup(board)
    assert ">Running</" in page and "1 running" in page and "63 queued" in page
    assert text_of(alice, address, state="RUNNING").count('class="cell ') == 1
    assert text_of(alice, address, state="QUEUED").count('class="cell ') == 63
    assert "comes closest" not in text_of(alice, "/runs/"), "it runs"


def test_each_row_has_the_reason_of_its_first_queued_element_in_a_fixed_number_of_queries(
    alice: Client, cast: Cast, django_assert_num_queries: Any
) -> None:
    def wait(run: Run) -> None:
        for place, session in enumerate(pending(run)):
            message = Message("{run} waits at {place}.", run=run.name, place=place)
            rows = ComputeSession.objects.filter(pk=session.pk)
            rows.update(queue_position=place + 1, status_message=message)

    runs = [launch(cast.alice, **ARRAY, name=f"sweep-{number}", array=3) for number in range(4)]
    paused = launch(cast.alice, **ARRAY, name="paused", array=1)
    assert alice.post(f"/runs/{paused.pk}/pause/").status_code == 302
    run_pipelines(timezone.now())
    alice.get("/runs/")
    for some in (runs[:1], runs):
        for run in some:
            wait(run)
        with django_assert_num_queries(10):
            page = text_of(alice, "/runs/")
        for run in some:
            assert f"{run.name} waits at 0." in page and f"{run.name} waits at 1." not in page
    assert page.count("The scheduler has not looked at it yet.") == 0, "and the paused one waits for no agent"


def test_the_page_of_a_large_run_has_few_queries(alice: Client, cast: Cast, django_assert_max_num_queries: Any) -> None:
    run = launch(cast.alice, **ARRAY, array=3000)
    run_pipelines(timezone.now())
    with django_assert_max_num_queries(22):
        page = text_of(alice, f"/runs/{run.pk}/", index="2999")
    assert page.count('class="cell ') == 1000 and "start=1000" in page


def test_a_board_is_sent_again_only_when_something_on_it_has_changed(alice: Client, cast: Cast) -> None:
    run = launch(cast.alice, **ARRAY, name="sweep", array=3)
    address = f"/runs/{run.pk}/board/"
    seen = alice.get(address).context["mark"]
    with CaptureQueriesContext(connection) as asked:
        assert alice.get(address, {"seen": seen}).status_code == 204
    assert not [one for one in asked.captured_queries if '"pipelines_run"."text"' in one["sql"]], "it can be large"
    run_pipelines(timezone.now())
    launched = alice.get(address, {"seen": seen})
    assert launched.status_code == 200 and "3 queued" in markup(launched)
    assert alice.get(address, {"seen": launched.context["mark"]}).status_code == 204
    (first, *_others) = pending(run)
    for to in (SessionStatus.SCHEDULED, SessionStatus.RUNNING, SessionStatus.TERMINATING):
        seen = alice.get(address).context["mark"]
        move([first.pk], to, StatusCause(Phase.RUN, "task-finished"), now=timezone.now())
        assert alice.get(address, {"seen": seen}).status_code == (204 if to == SessionStatus.RUNNING else 200), to
    seen = alice.get(address, {"index": "1"}).context["mark"]
    (session,) = ComputeSession.objects.filter(name="sweep-1")
    ComputeSession.objects.filter(pk=session.pk).update(status_reason="no-agent")
    assert alice.get(address, {"seen": seen, "index": "1"}).status_code == 200, "the reason of the element is new"
    seen = alice.get(address).context["mark"]
    Step.objects.filter(run=run).update(message="The image is gone.")
    assert "The image is gone." in markup(alice.get(address, {"seen": seen}))


def test_a_changed_board_has_only_the_parts_that_the_page_lacks(alice: Client, cast: Cast) -> None:
    step = {"image": "python", "startup_command": "a", "resources": {"cpu": 1, "mem": "512m"}}
    steps = {f"s{n}": {**step, "after": [f"s{n - 1}"] if n else []} for n in range(100)}
    run = launch(cast.alice, steps=steps | {"wide": {**step, "array": 500}})
    address = f"/runs/{run.pk}/board/"
    look = {"step": "wide", "from": "0"}
    whole = alice.get(address, look)
    run_pipelines(timezone.now())  # the first step and the first 64 elements of the array are launched
    ids = [one.pk for one in pending(run)]
    move(ids, SessionStatus.SCHEDULED, StatusCause(Phase.START), now=timezone.now())
    part = alice.get(address, look | {"seen": whole.context["mark"]})
    text = markup(part)
    assert len(part.content) < len(whole.content) / 4
    assert text.count('class="node ') == 11, "those beside s0, and the array"
    assert text.count('class="cell ') == 75, "three of twenty parts"
    assert text.count('<th scope="row"><a') == 5, "those beside s0"
    assert '<g id="run-lines-0" hx-preserve="true"></g>' in text
    for name in ("run-nodes-5", "run-cells-19", "run-steps-50"):
        assert f'id="{name}" hx-preserve="true"></' in text
        assert f'id="{name}">' in markup(whole), "the page has it under this name"
    again = alice.get(address, look | {"seen": "0." + part.context["mark"].partition(".")[2]})
    assert 'class="cell ' not in markup(again)


def test_the_form_opens_like_an_array(alice: Client, cast: Cast) -> None:
    sizes = launch(cast.alice, **ARRAY, name="sweep", array=3, retry=2)
    values = launch(cast.alice, **ARRAY, name="grid", matrix={"lr": [0.1, 0.2], "seed": [1, 2]})
    like = {run.name: alice.get("/sessions/new/", {"like_run": run.pk}).context["form"] for run in (sizes, values)}
    assert (like["sweep"]["array_size"].value(), like["sweep"]["retries"].value()) == (3, 2)
    assert like["grid"]["matrix"].value() == "lr = 0.1, 0.2\nseed = 1, 2"
    assert like["grid"]["startup_command"].value() == ARRAY["startup_command"]
    unknown = alice.get("/sessions/new/", {"like_run": "1"}).context["form"]
    assert not unknown["array_size"].value()


def test_a_cancelled_run_is_asked_about_until_its_last_session_has_ended(alice: Client, cast: Cast) -> None:
    run = launch(cast.alice, **ARRAY, array=2)
    run_pipelines(timezone.now())
    sessions = pending(run)
    kernels = list(Kernel.objects.filter(session__in=sessions).values_list("pk", flat=True))
    for to in (SessionStatus.SCHEDULED, SessionStatus.RUNNING):
        move([one.pk for one in sessions], to, StatusCause(Phase.START), now=timezone.now())
        move_kernels(kernels, to, now=timezone.now())
    page = text_of(alice, f"/runs/{run.pk}/", index="0")
    assert "2 running" in page and page.count(">Running</") >= 2
    alice.post(f"/runs/{run.pk}/cancel/", {"confirm": "cancel"})

    def is_said_to_end() -> None:
        board = alice.get(f"/runs/{run.pk}/board/", {"index": "0"})
        assert board.status_code == 200
        for page in (markup(board), text_of(alice, f"/runs/{run.pk}/", index="0"), text_of(alice, "/runs/")):
            assert "2 terminating" in page and not re.search(r"\d running", page)
        assert text_of(alice, f"/runs/{run.pk}/", state="TERMINATING").count('class="cell ') == 2
        assert text_of(alice, f"/runs/{run.pk}/", state="RUNNING").count('class="cell ') == 0

    is_said_to_end()
    move_kernels(kernels, SessionStatus.TERMINATED, now=timezone.now())
    move([one.pk for one in sessions], SessionStatus.TERMINATED, StatusCause(Phase.TERMINATE), now=timezone.now())
    is_said_to_end()  # until the pass writes the states
    run_pipelines(timezone.now())
    assert alice.get(f"/runs/{run.pk}/board/").status_code == 286


def test_the_board_of_500_steps_has_a_page_of_them_and_a_fixed_number_of_queries(
    alice: Client, cast: Cast, django_assert_num_queries: Any
) -> None:
    step = {"image": "python", "startup_command": "a", "resources": {"cpu": 1, "mem": "512m"}}
    small = launch(cast.alice, steps={f"s{number}": step for number in range(2)})
    large = launch(cast.alice, steps={f"s{n}": {**step, "after": [f"s{n - 1}"] if n else []} for n in range(500)})
    alice.get(f"/runs/{small.pk}/board/")
    for run in (small, large):
        with django_assert_num_queries(21):
            page = text_of(alice, f"/runs/{run.pk}/board/")
    assert page.count('class="node ') == 500 and page.count('<th scope="row"><a') == 100 and "1–100 / 500" in page
    chosen = text_of(alice, f"/runs/{large.pk}/board/", step="s250")
    assert "201–300 / 500" in chosen, "the step that is looked at stands in the table"
    assert "401–500 / 500" in text_of(alice, f"/runs/{large.pk}/board/", step="s250", **{"from": "400"})


def test_a_pipeline_is_checked_and_launched_from_its_document(alice: Client) -> None:
    text = "steps:\n  one: {image: python, startup_command: a}\n  two: {image: pythn, startup_command: b}\n"
    refused = alice.post("/runs/new/", {"text": text})
    assert refused.status_code == 422 and b"Line 3, column" in refused.content
    text = text.replace("pythn", "python")
    assert b"2 sessions" in alice.post("/runs/new/", {"text": text, "go": "check"}).content
    assert not Run.objects.exists()
    assert alice.post("/runs/new/", {"text": text, "name": "flow"}).status_code == 302
    assert Run.objects.get().steps.count() == 2


def test_cancelling_asks_first(alice: Client, cast: Cast) -> None:
    run = launch_text(cast.alice, "steps:\n  one: {image: python, startup_command: a, resources: {cpu: 1, mem: 1g}}\n")
    alice.post(f"/runs/{run.pk}/cancel/")
    run.refresh_from_db()
    assert run.status == Status.RUNNING
    alice.post(f"/runs/{run.pk}/cancel/", {"confirm": "cancel"})
    run.refresh_from_db()
    assert run.status == Status.CANCELLED


PARAMETERS = """\
params:
  lr: {type: number, max: 1, default: 0.1, title: Learning rate}
  mode: {type: choice, choices: [fast, full], default: fast}
  epochs: {type: integer, default: 3, advanced: true, show_if: {mode: full}}
  token: {type: secret}
steps:
  one: {image: python, resources: {cpu: 1, mem: 512m}, startup_command: 'train "$PARAM_LR"'}
"""


def test_a_pipeline_asks_for_its_parameters_and_its_copy_for_the_secret_again(alice: Client) -> None:
    asked = alice.post("/runs/new/", {"text": PARAMETERS, "name": "flow"})
    page = markup(asked)
    assert asked.status_code == 200 and not Run.objects.exists()
    assert "fill them in" in page and "Learning rate" in page and 'type="password"' in page
    assert "data-show-if" in page and "parameters-advanced" in page
    form = {"text": PARAMETERS, "name": "flow", "p.lr": "0.5", "p.mode": "fast", "p.epochs": "3"}
    missing = alice.post("/runs/new/", form)
    assert missing.status_code == 422 and missing.context["asked"].errors.keys() == {"p.token"}
    wrong = alice.post("/runs/new/", form | {"p.lr": "7", "p.token": "x"})
    assert wrong.context["asked"].errors.keys() == {"p.lr"}
    assert b"1 session" in alice.post("/runs/new/", form | {"p.token": "s3cret", "go": "check"}).content
    assert alice.post("/runs/new/", form | {"p.token": "s3cret"}).status_code == 302
    run = Run.objects.get()
    assert run.parameters == {"lr": 0.5, "mode": "fast", "epochs": 3} and "s3cret" not in run.text
    run_pipelines(timezone.now())
    (session,) = pending(run)
    assert session.environ["PARAM_LR"] == "0.5" and session.environ["PARAM_TOKEN"] == "s3cret"
    copy = alice.get("/runs/new/", {"like": str(run.pk)}).context["asked"]
    assert (copy["p.lr"].value(), copy["p.token"].value()) == ("0.5", None)


def test_the_limit_at_once_is_changed_on_the_page(alice: Client, cast: Cast) -> None:
    run = launch(cast.alice, **ARRAY, array=5)
    assert 'name="at_once"' in text_of(alice, f"/runs/{run.pk}/")
    assert alice.post(f"/runs/{run.pk}/at-once/", {"at_once": "2"}).status_code == 302
    run_pipelines(timezone.now())
    assert len(pending(run)) == 2
    assert alice.post(f"/runs/{run.pk}/at-once/", {"at_once": "many"}).status_code == 409
    assert alice.post(f"/runs/{run.pk}/at-once/", {"at_once": ""}).status_code == 302
    run_pipelines(timezone.now())
    assert len(pending(run)) == 5


def test_the_states_of_a_step_are_its_own(alice: Client, cast: Cast) -> None:
    step = {"image": "python", "resources": {"cpu": 1, "mem": "512m"}, "array": 2}
    steps = {"one": {**step, "startup_command": "a"}, "two": {**step, "startup_command": "b", "after": ["one"]}}
    run = launch(cast.alice, steps=steps)
    run_pipelines(timezone.now())
    assert "state=WAITING" not in text_of(alice, f"/runs/{run.pk}/", step="one")
    assert "state=RELEASED" not in text_of(alice, f"/runs/{run.pk}/", step="two")


def test_a_graph_of_500_steps_is_drawn_and_one_of_too_many_bends_is_not(alice: Client, cast: Cast) -> None:
    step = {"image": "python", "startup_command": "a", "resources": {"cpu": 1, "mem": "512m"}}
    chain = {f"s{number}": {**step, "after": [f"s{number - 1}"] if number else []} for number in range(500)}
    run = launch(cast.alice, steps=chain)
    assert text_of(alice, f"/runs/{run.pk}/").count('class="node ') == 500
    bent = {
        name: {**one, "after": [*one["after"], *(["s0"] if name not in ("s0", "s1") else [])]}
        for name, one in chain.items()
    }
    assert "run-graph-title" not in text_of(alice, f"/runs/{launch(cast.alice, steps=bent).pk}/")


@pytest.mark.parametrize("name", [one.name for one in EXAMPLES])
def test_each_example_launches_as_it_stands(alice: Client, cast: Cast, name: str) -> None:
    Image.objects.update(name="torch")
    with serving(FakeFileServer()) as server:
        make_host(server)
        create_folder(cast.alice, name="results", now=timezone.now())
        Folder.objects.update(status="READY")
    form = alice.get("/runs/new/", {"example": name}).context["form"]
    asked = {"p.folder": "results", "p.epochs": "3", "p.mode": "fast", "p.memory": "512m"}
    answer = alice.post("/runs/new/", {"text": form["text"].value(), "go": "check", **asked})
    assert answer.status_code == 200 and answer.context["found"], answer.context["form"].errors


def test_the_line_that_is_refused_is_told_to_the_page(alice: Client) -> None:
    answer = alice.post(
        "/runs/new/", {"text": "steps:\n  one: {image: python, startup_command: a}\n  two: {afer: [one]}\n"}
    )
    assert 'data-line="3"' in markup(answer) and "use after" in markup(answer)
