"""The last step of the launcher: what would be launched, and what stands in the way."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from backendai.domain.accounts.models import User
from backendai.domain.catalog.models import ResourcePreset
from backendai.domain.compute.models import ComputeSession
from tests.cast import Cast
from tests.effort import some
from tests.factories import make_agent, make_image, make_session
from tests.pages import markup
from tests.web.conftest import HTMX

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]


@pytest.fixture
def form(cast: Cast) -> dict[str, Any]:
    """One image, one agent; what a form for them sends."""
    make_image()
    make_agent(cpu=8)
    return {
        "image": "python",
        "session_type": "interactive",
        "project": str(cast.project.pk),
        "resource_group": "default",
        "preset": "",
        "cpu": "2",
        "mem": "1g",
    }


def reviewed(client: Client, values: dict[str, Any]) -> str:
    answer = client.post(reverse("web:launch_review"), values, **HTMX)
    assert answer.status_code == 200
    return markup(answer)


def text_of(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


def test_what_is_asked_for_is_shown_beside_what_is_wrong(cast: Cast, browse: Browse, form: dict[str, Any]) -> None:
    ResourcePreset.objects.create(name="medium", slots={"cpu": 3, "mem": "2g"})
    client = browse(cast.alice)
    elsewhere = text_of(reviewed(client, form | {"name": "-abc", "count": "2"}))
    for part in ("Begin with a letter or a digit.", "Amounts 2 CPU", "Idle checks none: the session runs until"):
        assert part in elsewhere, part
    batch = text_of(reviewed(client, form | {"session_type": "batch", "startup_command": "true"}))
    assert "Idle checks none: the session ends with its program" in batch
    assert "Total allocation 4 CPU · 2 GiB in 2 sessions" in elsewhere
    of_preset = text_of(reviewed(client, form | {"name": "-abc", "preset": "medium"}))
    assert "Amounts 3 CPU" in of_preset and "2 GiB medium" in of_preset
    least = text_of(reviewed(client, form | {"preset": "=minimum"}))
    assert "Minimum" in least and "=minimum" not in least
    too_much = text_of(reviewed(client, form | {"cpu": "500"}))
    assert "500 CPU cores requested" in too_much and "Amounts 500 CPU" in too_much
    unreadable = text_of(reviewed(client, form | {"cpu": "many"}))
    assert "'many' is not a number." in unreadable and "Amounts" not in unreadable and "Total" not in unreadable


def test_the_cards_say_what_would_be_launched(cast: Cast, browse: Browse, form: dict[str, Any]) -> None:
    ResourcePreset.objects.create(name="medium", slots={"cpu": 2, "mem": "2g"})
    rows = {"environ.name": ["EPOCHS", "API_TOKEN"], "environ.value": ["3", "s3cret"]}
    batch = {"session_type": "batch", "startup_command": "python <train>.py", "batch_timeout": "90m", "name": "the-job"}
    more = {"preset": "medium", "count": "3", "preopen_ports": "8080 9000", "starts_at": "2999-01-31T08:30"}
    client = browse(cast.alice)
    page = reviewed(client, form | rows | batch | more)
    text = text_of(page)
    for part in (
        "Type Batch",
        "Name the-job named …-1 to …-3",
        "python <train>.py",
        "Timeout 1h 30m",
        "EPOCHS = 3",
        "Sessions 3",
        "Total allocation 6\N{NO-BREAK SPACE}CPU",
        "8080 9000",
        "No folder is mounted",
    ):
        assert part.replace("\N{NO-BREAK SPACE}", " ") in text.replace("\N{NO-BREAK SPACE}", " ")
    assert "s3cret" not in page
    assert 'data-wrong=""' in page
    assert "is-wrong" not in page
    assert not ComputeSession.objects.exists()
    cluster = text_of(reviewed(client, form | {"count": "3", "cluster_size": "2"}))
    assert "Sessions 1 clusters launch one session" in cluster
    assert "in 2 kernels" in cluster


def test_it_tells_all_that_is_wrong_at_once_and_where(cast: Cast, browse: Browse, form: dict[str, Any]) -> None:
    wrong = {
        "session_type": "batch",
        "startup_command": " ",
        "name": "-x",
        "environ.name": ["1A"],
        "environ.value": ["x"],
        "preopen_ports": "http",
    }
    page = reviewed(browse(cast.alice), form | wrong)
    assert 'data-wrong="1 2 4"' in page
    assert "4 things need attention" in page
    assert page.count("review-card is-wrong") == 3
    told = dict(re.findall(r'data-fault="([^"]+)">([^<]*)<', page))
    assert set(told) == {"startup_command", "name", "environ", "preopen_ports"}
    assert "1A = x" in text_of(page), "what was typed is still there"


def test_what_only_the_services_know_is_told_too(cast: Cast, browse: Browse, form: dict[str, Any]) -> None:
    other = make_session(cast.alice, name="taken")
    client = browse(cast.alice)
    page = reviewed(client, form | {"name": "taken"})
    assert 'data-wrong="1"' in page
    assert f'href="{reverse("web:session", args=[other.pk])}"' in page
    make_session(cast.alice, name="swept-2")
    assert "swept-2" in reviewed(client, form | {"name": "swept", "count": "2"})
    assert 'data-wrong="2"' in reviewed(client, form | {"cpu": "64"})
    assert 'data-wrong=""' in reviewed(browse(cast.bob), form | {"name": "taken"}), "names are each owner's"


def test_without_scripts_a_button_shows_the_review_and_launches_nothing(
    cast: Cast, browse: Browse, form: dict[str, Any]
) -> None:
    client = browse(cast.alice)
    page = client.post(reverse("web:launch"), form | {"go": "review"})
    assert page.status_code == 200
    assert "Total allocation" in markup(page)
    assert client.post(reverse("web:launch"), form | {"go": "review", "cpu": "64"}).status_code == 422
    assert not ComputeSession.objects.exists()


@pytest.mark.parametrize("elements", [{"array_size": "20"}, {"matrix": "lr = 1, 2, 3, 4\nseed = 1, 2, 3, 4, 5"}])
def test_an_array_shows_the_amounts_of_all_its_elements(
    cast: Cast, browse: Browse, form: dict[str, Any], elements: dict[str, str]
) -> None:
    batch = {"session_type": "batch", "startup_command": "true", "name": "sweep", "cpu": "0.1", "mem": "256m"}
    page = text_of(reviewed(browse(cast.alice), form | batch | elements)).replace("\N{NO-BREAK SPACE}", " ")
    assert "Total allocation 20 × 0.1 CPU · 256 MiB up to 2 CPU · 5 GiB at once" in page


def test_several_sessions_are_launched_with_numbers(cast: Cast, browse: Browse, form: dict[str, Any]) -> None:
    client = browse(cast.alice)
    answer = client.post(reverse("web:launch"), form | {"name": "sweep", "count": "3", "go": "launch"})
    sessions = ComputeSession.objects.order_by("name")
    assert [session.name for session in sessions] == ["sweep-1", "sweep-2", "sweep-3"]
    assert set(answer["Location"].partition("=")[2].split(",")) == {str(session.pk) for session in sessions}
    client.post(reverse("web:launch"), form | {"name": "ring", "count": "3", "cluster_size": "2"})
    assert [session.cluster_size for session in sessions.filter(name__startswith="ring")] == [2]


def test_it_costs_a_fixed_number_of_queries(cast: Cast, browse: Browse, form: dict[str, Any]) -> None:
    client = browse(cast.alice)

    def queries() -> int:
        with CaptureQueriesContext(
            connection,
        ) as seen:
            reviewed(client, form | {"name": "this-one"})
        return len(seen)

    before = queries()
    for number in range(4):
        make_session(cast.alice, name=f"more-{number}")
        make_agent(f"node-{number}")
        ResourcePreset.objects.create(name=f"p{number}", slots={"cpu": 1, "mem": "1g"})
    assert queries() == before
    assert before < 40


def test_threads_are_as_many_as_cores_unless_they_are_set(cast: Cast, browse: Browse, form: dict[str, Any]) -> None:
    client = browse(cast.alice)
    by_hand = {"threads": "manual", "omp_threads": "2", "openblas_threads": "7"}
    own = {"environ.name": ["OMP_NUM_THREADS"], "environ.value": ["9"]}
    for name, values in (("auto-one", {"omp_threads": "2"}), ("by-hand", by_hand), ("own-wins", by_hand | own)):
        assert client.post(reverse("web:launch"), form | values | {"name": name}).status_code == 302
    found = dict(ComputeSession.objects.values_list("name", "environ"))
    assert found["auto-one"] == {}, "the node's side counts the cores"
    assert found["by-hand"] == {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "7"}
    assert found["own-wins"] == {"OMP_NUM_THREADS": "9", "OPENBLAS_NUM_THREADS": "7"}
    for wrong in ("0", "1001", "many"):
        page = reviewed(client, form | by_hand | {"omp_threads": wrong})
        assert 'data-fault="omp_threads"' in page
        assert 'data-wrong="2"' in page
    assert 'data-wrong=""' in reviewed(client, form | {"threads": "auto", "omp_threads": "1001"})


def test_each_bad_port_has_its_reason(cast: Cast, browse: Browse, form: dict[str, Any]) -> None:
    page = reviewed(browse(cast.alice), form | {"preopen_ports": "8080, 80 70000 http\n8080 2200,1024 65535"})
    told = [unescape(text) for text in re.findall(r'data-fault="preopen_ports">([^<]*)<', page)]
    assert told == [
        "Port 80 is not between 1024 and 65535.",
        "Port 70000 is not between 1024 and 65535.",
        "'http' is not a port: write numbers such as 8080.",
        "Port 8080 is named twice.",
        "Port 2200 belongs to the platform.",
    ]


def told(page: str) -> list[tuple[str, str]]:
    """Return what is said at which field, in the order of the page."""
    return [(name, unescape(text)) for name, text in re.findall(r'data-fault="(\w+)">([^<]*)<', page)]


@some(
    ("typed", "words"),
    [
        ("0", "Enter a time longer than 0."),
        ("0m", "Enter a time longer than 0."),
        ("-1h", "Enter a time longer than 0."),
        ("3651d", "Enter a time of at most 3650 days."),
        ("5", "Write a number with its unit, such as 90s, 30m, 2h or 7d."),
        ("m", "Write a number with its unit, such as 90s, 30m, 2h or 7d."),
        ("", "Enter a timeout or clear the box."),
    ],
    2,
)
def test_a_timeout_that_is_none_is_refused_at_its_field_beside_all_else_that_is_wrong(
    cast: Cast, browse: Browse, form: dict[str, Any], typed: str, words: str
) -> None:
    client, wished = browse(cast.alice), {"batch_timeout": typed, "wished": ["batch_timeout"]}
    batch = form | {"session_type": "batch", "startup_command": "true", "name": "fine-name"}
    assert told(reviewed(client, batch | wished)) == [("batch_timeout", words)]
    worse = batch | wished | {"name": "no", "startup_command": "", "priority": "101"}
    at = [name for name, _text in told(reviewed(client, worse))]
    assert at == ["name", "startup_command", "batch_timeout", "priority"], "in the order of the page"
    assert told(reviewed(client, batch | wished | {"session_type": "interactive", "startup_command": ""})) == []
    answer = client.post(reverse("web:launch"), batch | wished)
    assert (answer.status_code, ComputeSession.objects.exists()) == (422, False)


def test_a_time_that_is_ticked_must_be_written(cast: Cast, browse: Browse, form: dict[str, Any]) -> None:
    batch = form | {"session_type": "batch", "startup_command": "true"}
    client = browse(cast.alice)
    page = reviewed(client, batch | {"starts_at": "", "wished": ["starts_at"]})
    assert told(page) == [("starts_at", "Enter a start time or clear the box.")]
    for fine in ({"batch_timeout": "1s", "wished": ["batch_timeout"]}, {"batch_timeout": "", "starts_at": ""}):
        assert 'data-wrong=""' in reviewed(client, batch | fine)


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({"startup_command": "/usr/bin/mpirun ./train"}, "every kernel, but this program"),
        ({"startup_command": "mpirun ./train", "command_in": "main"}, "only the main kernel, when the others run"),
        ({"startup_command": "torchrun train.py"}, ""),
        ({"startup_command": "mpirun ./train", "cluster_size": "1"}, ""),
    ],
)
def test_a_program_that_starts_others_should_run_in_the_main_kernel(
    cast: Cast, browse: Browse, form: dict[str, Any], more: dict[str, str], wanted: str
) -> None:
    cluster = form | {"session_type": "batch", "cluster_size": "3", "cpu": "1"}
    shown = text_of(reviewed(browse(cast.alice), cluster | more))
    assert ("Command runs in" in shown) == bool(wanted) and wanted in shown


def test_the_script_launches_what_the_form_would(cast: Cast, browse: Browse, form: dict[str, Any]) -> None:
    command = """echo "it's $HOME" && python -c 'print(1)'"""
    asked = form | {"session_type": "batch", "startup_command": command, "name": "nightly"}
    page = browse(cast.alice).post(reverse("web:launch_review"), asked, **HTMX).content.decode()
    bai, curl, python = re.findall(r"<pre[^>]*><code>(.*?)</code></pre>", page, re.DOTALL)[-3:]
    words = shlex.split(unescape(curl))
    assert shlex.split(unescape(bai)) == ["bai", "api", "POST", "/sessions/", "-d", words[-1]]
    assert words[:3] == ["curl", "-fsS", "http://testserver/api/v1/sessions/"]
    sent = json.loads(words[-1])
    compile(unescape(python), "script.py", "exec")
    answer = browse(cast.alice).post("/api/v1/sessions/", words[-1], content_type="application/json")
    assert answer.status_code == 201, answer.content
    session = ComputeSession.objects.get(name="nightly")
    assert (session.startup_command, session.slots["cpu"], sent["type"]) == (command, "2", "batch")
    assert "The same as a script" not in reviewed(browse(cast.alice), asked | {"count": "3", "name": ""})
    bookmark = {"type": "batch", "startup_command": "true", "image": "python", "step": "5"}
    assert "The same as a script" in browse(cast.alice).get(reverse("web:launch"), bookmark).content.decode()
