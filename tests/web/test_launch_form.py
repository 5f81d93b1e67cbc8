"""The launch form."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from backendai.base.core.slots import Slots
from backendai.domain.accounts.models import User
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.catalog.models import Image, ResourcePreset
from backendai.domain.catalog.services import BUILD_JOB
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.status import Status
from backendai.domain.pipelines.models import Run
from backendai.portal.web.launch.steps import step_of
from tests.cast import Cast
from tests.effort import some
from tests.factories import make_agent, make_group, make_image, make_running_session, make_session
from tests.pages import markup

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]


@pytest.fixture
def site(cast: Cast) -> Cast:
    """One image, one group, one agent with a GPU."""
    make_image()
    capacity = Slots.parse({"cpu": 8, "mem": "16g", "cuda.device": 2}).to_json()
    make_agent(capacity=capacity)
    return cast


def typed(cast: Cast, **over: Any) -> dict[str, Any]:
    values = {
        "image": "python",
        "name": "try-one",
        "session_type": "interactive",
        "project": str(cast.project.pk),
        "resource_group": "default",
        "preset": "",
        "cpu": "2",
        "mem": "1g",
    }
    return values | over


def test_it_starts_what_was_typed_and_goes_to_the_list(site: Cast, browse: Browse) -> None:
    answer = browse(site.alice).post(reverse("web:launch"), typed(site, **{"slot.cuda.device": "1"}))
    session = ComputeSession.objects.get()
    assert answer["Location"] == f"{reverse('web:sessions')}?launched={session.pk}"
    assert (session.name, session.owner) == ("try-one", site.alice)
    assert session.slots == {"cpu": "2", "mem": str(2**30), "cuda.device": "1"}


def test_it_takes_the_presets_numbers_instead_of_those_typed(site: Cast, browse: Browse) -> None:
    ResourcePreset.objects.create(name="medium", slots={"cpu": 4, "mem": "2g"})
    browse(site.alice).post(reverse("web:launch"), typed(site, preset="medium", cpu="1"))
    assert ComputeSession.objects.get().slots == {"cpu": "4", "mem": str(2 * 2**30)}


def test_an_array_becomes_one_run_however_often_it_is_sent(site: Cast, browse: Browse) -> None:
    client, values = browse(site.alice), typed(site, session_type="batch", startup_command="true", array_size="12")
    review = markup(client.post(reverse("web:launch"), values | {"go": "review"}))
    assert '<dt>Array size</dt><dd class="number">12</dd>' in review and not Run.objects.exists()
    for _ in range(2):
        answer = client.post(reverse("web:launch"), values | {"request_key": "one"})
        assert answer["Location"] == reverse("web:run", args=[Run.objects.get().pk])
    assert Run.objects.get().size == 12 and not ComputeSession.objects.exists()
    assert client.post(reverse("web:launch"), values | {"array_size": "99999"}).status_code == 422


@pytest.mark.parametrize(("over", "size"), [({}, 1), ({"count": "3"}, 3), ({"array_size": "5"}, 5)])
def test_a_command_with_retries_is_a_run_whose_attempts_are_kept(
    site: Cast, browse: Browse, over: dict[str, str], size: int
) -> None:
    client = browse(site.alice)
    values = typed(site, session_type="batch", startup_command="true", retries="4", **over)
    review = markup(client.post(reverse("web:launch"), values | {"go": "review"}))
    assert '<dt>Retries</dt><dd class="number">4</dd>' in review
    assert client.post(reverse("web:launch"), values | {"retries": "0"}).status_code == 422
    answer = client.post(reverse("web:launch"), values)
    run = Run.objects.get()
    assert answer["Location"] == reverse("web:run", args=[run.pk]) and run.size == size
    retry = run.steps.get().retry
    assert (retry["times"], retry["wait"], retry["factor"], retry["reasons"]) == (4, 30, 2, [])
    later = values | {"starts_at": "2090-01-01T00:00", "wished": "starts_at"}
    assert b"session with retries has no starts_at" in client.post(reverse("web:launch"), later).content


@some("zone", ["America/Los_Angeles", "UTC", "Pacific/Kiritimati"], 2)
@some("start", ["9999-12-31T23:59", "0001-01-01T00:00", "202706-06-01T10:00", "1e400", "NaN"], 2)
def test_a_start_at_the_end_of_the_calendar_is_refused_at_its_field(
    site: Cast, browse: Browse, start: str, zone: str
) -> None:
    client = browse(site.alice)
    values = typed(site, session_type="batch", startup_command="true", starts_at=start, wished="starts_at")
    values |= {"time_zone": zone}
    assert client.post(reverse("web:launch_preview"), values).status_code == 200
    answer = client.post(reverse("web:launch"), values)
    assert (answer.status_code, "starts_at" in answer.context["form"].errors) == (422, True)


@some("timeout", ["999999999d", "-1s", "1e400", "NaN", "9999999999 00:00:00", "366000d"], 2)
def test_a_timeout_without_end_is_refused_at_its_field(site: Cast, browse: Browse, timeout: str) -> None:
    values = typed(site, session_type="batch", startup_command="true", batch_timeout=timeout, wished="batch_timeout")
    answer = browse(site.alice).post(reverse("web:launch"), values)
    assert (answer.status_code, "batch_timeout" in answer.context["form"].errors) == (422, True)


def test_it_makes_one_session_of_a_form_that_is_sent_twice(site: Cast, browse: Browse) -> None:
    client = browse(site.alice)
    key = client.get(reverse("web:launch")).context["form"]["request_key"].value()
    for _ in range(2):
        assert client.post(reverse("web:launch"), typed(site, request_key=key)).status_code == 302
    assert ComputeSession.objects.count() == 1


def test_an_administrator_launches_for_somebody_with_their_projects_and_groups(site: Cast, browse: Browse) -> None:
    make_group("others", is_public=False).projects.add(site.elsewhere)
    client, launch = browse(site.dana), reverse("web:launch")
    form = client.get(launch, {"owner": "charlie@example.com"}).context["form"]
    assert [project.name for project in form.fields["project"].rows] == ["other"]
    values = typed(site, owner="charlie@example.com", project=str(site.elsewhere.pk))
    outlook = markup(client.post(reverse("web:launch_preview"), values))
    assert "Starts" in outlook
    assert client.post(launch, values | {"resource_group": "others"}).status_code == 302
    session = ComputeSession.objects.get()
    assert (session.owner, session.launched_by, session.resource_group.name) == (site.charlie, site.dana, "others")


def test_an_address_that_nobody_has_is_refused_where_it_was_typed(site: Cast, browse: Browse) -> None:
    said = "No user &#x27;bob@example.com&#x27;, or you may not launch for them."
    client, launch = browse(site.alice), reverse("web:launch")
    page = markup(client.get(launch))
    assert "Launch it for" not in page
    answer = client.post(launch, typed(site, owner="bob@example.com"))
    assert answer.status_code == 422
    assert said in markup(answer)
    shown = markup(browse(site.dana).get(launch, {"owner": "nobody@example.com"}))
    assert said.replace("bob@", "nobody@") in shown
    assert not ComputeSession.objects.exists()


def test_it_keeps_a_command_only_for_batch(site: Cast, browse: Browse) -> None:
    client = browse(site.alice)
    client.post(reverse("web:launch"), typed(site, startup_command="left over"))
    job = typed(site, name="the-job", session_type="batch", startup_command="echo hi")
    client.post(reverse("web:launch"), job)
    commands = dict(ComputeSession.objects.values_list("name", "startup_command"))
    assert commands == {"try-one": "", "the-job": "echo hi"}


def test_the_lines_of_a_command_end_as_a_shell_reads_them(site: Cast, browse: Browse) -> None:
    job = typed(site, session_type="batch", startup_command="for n in 1 2\r\ndo echo $n\r\ndone\r\nexit 3")
    browse(site.alice).post(reverse("web:launch"), job)
    assert ComputeSession.objects.get().startup_command == "for n in 1 2\ndo echo $n\ndone\nexit 3"


def test_a_batch_session_gets_its_end_its_order_and_its_priority(site: Cast, browse: Browse) -> None:
    client = browse(site.alice)
    first = make_session(site.alice, name="first", session_type="batch", startup_command="true")
    make_session(site.alice, name="never-ends-well")  # interactive
    page = markup(client.get(reverse("web:launch")))
    assert f'name="depends_on" value="{first.pk}"' in page
    assert "never-ends-well" not in page
    wishes = {"batch_timeout": "2h 30m", "depends_on": [str(first.pk)], "priority": "3"}
    job = typed(site, name="the-job", session_type="batch", startup_command="true", **wishes)
    assert client.post(reverse("web:launch"), job).status_code == 302
    session = ComputeSession.objects.get(name="the-job")
    assert (session.batch_timeout, session.priority) == (timedelta(hours=2, minutes=30), 3)
    assert list(session.depends_on.all()) == [first]
    form = client.get(reverse("web:launch"), {"like": str(session.pk)}).context["form"]
    assert form["batch_timeout"].value() == "2h 30m"
    assert (form["depends_on"].value(), form["priority"].value()) == ([first.pk], 3)
    assert form.is_order_open()


def test_sessions_of_others_cannot_be_waited_for(site: Cast, browse: Browse) -> None:
    foreign = make_session(site.bob, name="bobs", session_type="batch", startup_command="true")
    client = browse(site.alice)
    assert "bobs" not in markup(client.get(reverse("web:launch")))
    job = typed(site, session_type="batch", startup_command="true", depends_on=[str(foreign.pk)])
    answer = client.post(reverse("web:launch"), job)
    assert answer.status_code == 422
    assert not ComputeSession.objects.filter(owner=site.alice).exists()


def test_an_interactive_session_drops_what_only_batch_sessions_have(site: Cast, browse: Browse) -> None:
    first = make_session(site.alice, name="first", session_type="batch", startup_command="true")
    left_over = typed(site, batch_timeout="2h", depends_on=[str(first.pk)])
    assert browse(site.alice).post(reverse("web:launch"), left_over).status_code == 302
    session = ComputeSession.objects.get(name="try-one")
    assert (session.batch_timeout, session.depends_on.count()) == (None, 0)


def test_a_new_session_takes_the_place_of_one_that_waits(site: Cast, browse: Browse) -> None:
    waits = make_session(site.alice, name="waits")
    client = browse(site.alice)
    page = markup(client.get(reverse("web:launch"), {"like": str(waits.pk)}))
    assert re.search(rf'name="replaces" value="{waits.pk}" checked', page)
    sent = typed(site, replaces=str(waits.pk), request_key="once")
    for _ in range(2):  # a form that is sent twice does it once
        assert client.post(reverse("web:launch"), sent).status_code == 302
    waits.refresh_from_db()
    assert waits.status == Status.CANCELLED
    assert ComputeSession.objects.get(name="try-one").status == Status.PENDING
    assert 'name="replaces"' not in markup(client.get(reverse("web:launch"), {"like": str(waits.pk)}))


def test_neither_is_touched_when_the_new_one_is_refused(site: Cast, browse: Browse) -> None:
    waits = make_session(site.alice, name="waits")
    client = browse(site.alice)
    answer = client.post(reverse("web:launch"), typed(site, cpu="64", replaces=str(waits.pk)))
    assert answer.status_code == 422
    waits.refresh_from_db()
    assert waits.status == Status.PENDING


def test_one_that_has_started_meanwhile_is_not_replaced(site: Cast, browse: Browse) -> None:
    runs = make_running_session(site.alice, name="runs")
    answer = browse(site.alice).post(reverse("web:launch"), typed(site, replaces=str(runs.pk)))
    assert answer.status_code == 422
    assert "runs is no longer pending: it has started." in markup(answer)
    runs.refresh_from_db()
    assert runs.status == Status.RUNNING
    assert not ComputeSession.objects.filter(name="try-one").exists()


def test_nobody_replaces_the_session_of_somebody_else(site: Cast, browse: Browse) -> None:
    waits = make_session(site.alice, name="waits")
    for person in (site.bob, site.dana):
        answer = browse(person).post(reverse("web:launch"), typed(site, name="", replaces=str(waits.pk)))
        assert answer.status_code == 422
    waits.refresh_from_db()
    assert waits.status == Status.PENDING


@some(
    ("change", "field", "words"),
    [
        ({"name": "my job"}, "name", "A space is not allowed"),
        ({"name": "taken"}, "name", "already have a session named"),
        ({"session_type": "batch"}, "startup_command", "needs a command"),
        ({"cpu": "many"}, "cpu", "not a number"),
        ({"cpu": "99"}, "cpu", "no agent of default has more than 8"),
        ({"mem": "1m"}, "mem", "at least"),
        ({"slot.cuda.device": "9"}, "slot.cuda.device", "9 GPUs requested"),
        ({"image": "unheard-of"}, "image", "valid choice"),
    ],
)
def test_it_shows_a_refusal_at_its_field_and_keeps_what_was_typed(
    site: Cast, browse: Browse, change: dict[str, str], field: str, words: str
) -> None:
    make_session(site.alice, name="taken")
    answer = browse(site.alice).post(reverse("web:launch"), typed(site, **change))
    assert answer.status_code == 422
    assert words in str(answer.context["form"].errors[field])
    assert ComputeSession.objects.count() == 1
    if field == "cpu":
        assert f'value="{change["cpu"]}"' in markup(answer)


def test_it_offers_only_projects_and_groups_that_are_open_to_one(site: Cast, browse: Browse) -> None:
    make_group("secret", is_public=False)
    form = browse(site.charlie).get(reverse("web:launch")).context["form"]
    assert [each.name for each in form.fields["project"].rows] == ["other"]
    assert "secret" not in [each.name for each in form.fields["resource_group"].rows]
    answer = browse(site.charlie).post(reverse("web:launch"), typed(site))
    assert "project" in answer.context["form"].errors


def test_the_only_group_is_named_and_not_to_be_chosen(site: Cast, browse: Browse) -> None:
    client = browse(site.alice)
    page = markup(client.get(reverse("web:launch")))
    only = page.partition('id="only-group"')[2].partition("</div>")[0]
    assert "<bdi>default</bdi>" in only and "the only one that is open to you" in only
    make_group("second")
    page = markup(client.get(reverse("web:launch")))
    assert 'id="only-group"' not in page and '<select name="resource_group"' in page


def test_it_tells_somebody_without_a_project_what_is_missing(site: Cast, browse: Browse) -> None:
    site.bob.memberships.all().delete()
    client = browse(site.bob)
    assert client.get(reverse("web:launch")).status_code == 200
    answer = client.post(reverse("web:launch"), typed(site, project=""))
    assert answer.status_code == 422
    assert "None is available to launch in: ask an administrator to add people to projects." in markup(answer)


def test_it_chooses_the_first_preset_and_shows_its_numbers(site: Cast, browse: Browse) -> None:
    ResourcePreset.objects.create(name="medium", slots={"cpu": 4, "mem": "2g"}, rank=1)
    ResourcePreset.objects.create(name="small", slots={"cpu": "0.5", "mem": str(512 * 2**20)})
    page = markup(browse(site.alice).get(reverse("web:launch")))
    assert '<input type="radio" name="preset" value="small" id="preset-small" checked>' in page
    assert 'name="cpu" id="id_cpu" value="0.5"' in page
    assert 'name="mem" id="id_mem" value="512"' in page
    assert '<option value="m" selected>MiB' in page


def test_it_chooses_custom_where_no_preset_fits_the_group(site: Cast, browse: Browse) -> None:
    ResourcePreset.objects.create(name="only-there", slots={"cpu": 1}, resource_group=make_group("other"))
    page = markup(browse(site.alice).get(reverse("web:launch")))
    assert '<input type="radio" name="preset" value="" id="preset-custom" checked>' in page


def test_it_offers_a_preset_once_and_takes_the_groups_own_meaning_of_it(site: Cast, browse: Browse) -> None:
    ResourcePreset.objects.create(name="medium", slots={"cpu": 4, "mem": "2g"})
    ResourcePreset.objects.create(name="medium", slots={"cpu": 2, "mem": "1g"}, resource_group=make_group())
    client = browse(site.alice)
    assert markup(client.get(reverse("web:launch"))).count('name="preset" value="medium"') == 1
    client.post(reverse("web:launch"), typed(site, preset="medium"))
    assert ComputeSession.objects.get().slots == {"cpu": "2", "mem": str(2**30)}


def test_it_passes_on_variables_kernels_and_the_start_time(site: Cast, browse: Browse) -> None:
    rows = {"environ.name": ["EPOCHS", "", "DATA"], "environ.value": ["3", "", "a=b c"]}
    times = {"starts_at": "2999-01-31T08:30", "time_zone": "Asia/Seoul"}
    job = typed(site, session_type="batch", startup_command="true", cluster_size="2", **rows, **times)
    assert browse(site.alice).post(reverse("web:launch"), job).status_code == 302
    session = ComputeSession.objects.get()
    assert session.environ == {"EPOCHS": "3", "DATA": "a=b c"}
    assert session.cluster_size == session.kernels.count() == 2
    assert session.starts_at == datetime(2999, 1, 30, 23, 30, tzinfo=UTC)


def test_it_drops_the_start_time_of_an_interactive_session(site: Cast, browse: Browse) -> None:
    browse(site.alice).post(reverse("web:launch"), typed(site, starts_at="2999-01-31T08:30"))
    assert ComputeSession.objects.get().starts_at is None


@some(
    ("change", "field", "words"),
    [
        ({"environ.name": ["1A"], "environ.value": ["x"]}, "environ", "not a variable name"),
        ({"environ.name": ["A", "A"], "environ.value": ["x", "y"]}, "environ", "set twice"),
        ({"environ.name": ["", ""], "environ.value": ["", "x"]}, "environ", "has no name"),
        ({"environ.name": ["A"], "environ.value": [""]}, "environ", "has no value"),
        ({"cluster_size": "17"}, "cluster_size", "At most 16 kernels in one session."),
        ({"session_type": "batch", "startup_command": "true", "starts_at": "tomorrow"}, "starts_at", "valid date"),
        (
            {"session_type": "batch", "startup_command": "true", "starts_at": "2001-01-01T00:00"},
            "starts_at",
            "past",
        ),
        ({"preopen_ports": "8080 http"}, "preopen_ports", "&#x27;http&#x27; is not a port"),
        ({"preopen_ports": "8080,8080"}, "preopen_ports", "named twice"),
    ],
)
def test_it_marks_the_step_and_the_card_with_a_refusal_in_it(
    site: Cast, browse: Browse, change: dict[str, Any], field: str, words: str
) -> None:
    answer = browse(site.alice).post(reverse("web:launch"), typed(site, **change))
    assert answer.status_code == 422
    assert words in str(answer.context["form"].errors[field])
    page = markup(answer)
    assert 'id="launch-obstacle"' in page
    step = step_of(field)
    assert 'data-step="5"' in page, "the review tells all that is wrong"
    assert f'data-wrong="{step}"' in page
    assert page.count("review-card is-wrong") == 1
    assert re.search(rf'id="step-mark-{step}" title="[^"]+">', page), "not hidden"
    assert len(re.findall(r'class="step-mark"(?![^>]* hidden)', page)) == 1
    assert all(f'value="{value}"' in page for value in change.get("environ.value", []))


def test_it_shows_how_far_the_build_of_an_image_is(site: Cast, browse: Browse) -> None:
    Image.objects.update(is_built_here=True)
    job = BackgroundJob(kind=BUILD_JOB, subject="local/python:latest", progress=0.41, message="Unpacking.")
    job.save()
    page = markup(browse(site.alice).get(reverse("web:launch")))
    assert "The image python is being built: 41 %. Sessions wait for it" in page
    assert "<small>Unpacking.</small>" in page
    job.status, job.message, job.fix = BackgroundJob.Status.FAILED, "The disk is full.", "Free some space."
    job.save()
    page = markup(browse(site.alice).get(reverse("web:launch")))
    assert "The image python could not be built: The disk is full." in page


@pytest.mark.parametrize("others", ["docker", "process"])
def test_sessions_without_containers_do_not_wait_for_the_build_of_an_image(
    site: Cast, browse: Browse, others: str
) -> None:
    Image.objects.update(is_built_here=True, process_reference="native/python")
    BackgroundJob.objects.create(kind=BUILD_JOB, subject="local/python:latest", progress=0.41)
    make_agent("n1")
    Agent.objects.update(backend=others)
    make_agent("n2", backend="process")
    page = markup(browse(site.alice).get(reverse("web:launch")))
    assert ("Sessions wait for it" in page) == (others == "docker")
    assert ("sessions start without a container" in page) == (others == "process")


def test_it_starts_one_like_another_with_all_it_had(site: Cast, browse: Browse) -> None:
    wanted = {"cpu": "1.5", "mem": "512m", "cuda.device": 1}
    model = make_session(site.alice, resources=wanted, environ={"TOKEN": "s3cret"}, cluster_size=2)
    address = reverse("web:launch") + f"?like={model.pk}"
    page = markup(browse(site.alice).get(address))
    amounts = ('id="id_cpu" value="1.5"', 'id="id_mem" value="512"')
    for text in (*amounts, 'value="TOKEN"', 'value="s3cret"'):
        assert text in page
    for stranger in (site.bob, site.dana):
        assert "s3cret" not in markup(browse(stranger).get(address))
    assert browse(site.alice).get(reverse("web:launch") + "?like=nonsense").status_code == 200


def test_a_preset_that_does_not_fit_says_why_in_the_chosen_group(site: Cast, browse: Browse) -> None:
    ResourcePreset.objects.create(name="huge", slots={"cpu": 64, "mem": "1g"})
    make_agent(group=make_group("big"), cpu=128, mem="256g")
    client = browse(site.alice)
    page = markup(client.get(reverse("web:launch"), {"resource_group": "default"}))
    assert page.count("is-unfit") == 1
    assert "Cannot start: needs " in page
    there = client.post(reverse("web:launch_amounts"), typed(site, resource_group="big", preset="huge"))
    assert "is-unfit" not in markup(there)
    assert 'value="huge" id="preset-huge" checked' in markup(there)
    nowhere = client.post(reverse("web:launch_amounts"), typed(site, resource_group="no-such"))
    assert nowhere.status_code == 200


def test_an_image_is_chosen_by_another_name_of_it(site: Cast, browse: Browse) -> None:
    Image.objects.get(name="python").aliases.create(name="py")
    client = browse(site.alice)
    page = markup(client.get(reverse("web:launch"), {"image": "py"}))
    assert re.search(r'name="image" value="python"[^>]* checked', page)
    assert client.post(reverse("web:launch"), typed(site, image="py")).status_code == 302
    assert ComputeSession.objects.get().image.name == "python"


def test_looking_an_owner_up_empties_what_was_chosen_and_offers_what_is_theirs(site: Cast, browse: Browse) -> None:
    make_group("others", is_public=False).projects.add(site.elsewhere)
    site.charlie.key_pairs.create(access_key="AKSECOND", name="laptop", is_active=True)
    site.charlie.key_pairs.create(access_key="AKRESTING", is_active=False)
    main = site.charlie.key_pairs.main_first().first()
    client, launch = browse(site.dana), reverse("web:launch")
    rows = {"environ.name": ["EPOCHS"], "environ.value": ["3"]}
    sent = typed(site, go="owner", for_whom="other", owner="Charlie@example.com ", cpu="3", **rows)
    answer = client.post(launch, sent)
    form, page = answer.context["form"], markup(answer)
    assert (answer.status_code, answer.context["step"], answer.context["owner"]) == (200, 1, site.charlie)
    assert not form.errors
    assert [key for key, _text in form.fields["access_key"].choices] == [main.access_key, "AKSECOND"]
    assert [project.name for project in form.fields["project"].rows] == ["other"]
    assert "others" in [group.name for group in form.fields["resource_group"].rows]
    assert (form["cpu"].value(), form["name"].value()) == ("3", "try-one")
    assert 'value="EPOCHS"' in page
    assert "The session will belong to" in page
    assert not ComputeSession.objects.exists(), "looking up launches nothing"
    ready = typed(site, for_whom="other", owner="charlie@example.com", project=str(site.elsewhere.pk))
    reviewed = markup(client.post(launch, ready | {"access_key": "AKSECOND", "go": "review"}))
    assert "charlie@example.com" in reviewed
    assert '<dd class="mono">AKSECOND</dd>' in reviewed
    refused = client.post(launch, ready | {"access_key": "AKRESTING"})
    assert "access_key" in refused.context["form"].errors
    assert client.post(launch, ready | {"access_key": "AKSECOND"}).status_code == 302
    session = ComputeSession.objects.get()
    assert (session.owner, session.launched_by, session.access_key) == (site.charlie, site.dana, "AKSECOND")


def test_turning_the_switch_off_makes_it_ones_own_again(site: Cast, browse: Browse) -> None:
    client, launch = browse(site.dana), reverse("web:launch")
    own = typed(site, for_whom="me", owner="charlie@example.com")
    assert client.post(launch, own | {"go": "owner"}).context["owner"] == site.dana
    assert client.post(launch, own).status_code == 302
    session = ComputeSession.objects.get()
    assert (session.owner, session.launched_by) == (site.dana, None)


def test_somebody_unknown_is_said_at_the_address_and_nothing_is_launched_for_anybody(
    site: Cast, browse: Browse
) -> None:
    client, launch = browse(site.dana), reverse("web:launch")
    for go in ("owner", "review", "launch"):
        answer = client.post(launch, typed(site, for_whom="other", owner="nobody@example.com", go=go))
        assert answer.status_code == 422, go
        assert 'id="id_owner_error"' in markup(answer), go
    assert not ComputeSession.objects.exists()
    plain = browse(site.alice).get(launch, {"owner": "bob@example.com"})
    assert plain.context["owner"] == site.alice
    assert "Launch it for somebody else" not in markup(plain)


def test_each_wrong_variable_says_so_at_its_row(site: Cast, browse: Browse) -> None:
    rows = [("GOOD", "1"), ("1A", "x"), ("", ""), ("", "lost"), ("EMPTY", ""), ("GOOD", "2"), ("BACKENDAI_X", "y")]
    sent = {"environ.name": [name for name, _ in rows], "environ.value": [value for _, value in rows]}
    answer = browse(site.alice).post(reverse("web:launch"), typed(site, **sent))
    page = markup(answer)
    said = dict(re.findall(r'id="id_environ_(\d)_error">([^<]*)<', page))
    assert set(said) == {"1", "3", "4", "5", "6"}
    assert "is not a variable name" in said["1"]
    assert said["3"] == "This value has no name."
    assert said["4"] == "EMPTY has no value."
    assert said["5"] == "GOOD is set twice."
    assert said["6"].startswith("BACKENDAI_X is reserved")
    assert re.findall(r'data-row="(\d)" data-fault="environ"', page) == ["1", "3", "4", "5", "6"]
