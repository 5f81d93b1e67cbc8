"""Why a session waits and what would start it: the explanation and the preview say what the next pass then does."""

from __future__ import annotations

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backendai.base.core.errors import UserError
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.services.launching.create import create_session
from backendai.domain.compute.spec import SessionSpec
from backendai.domain.compute.status import Status
from backendai.domain.planning import deciding
from backendai.domain.planning.explain import Verdict, explain
from backendai.domain.planning.preview import preview
from backendai.portal.loops.group_pass import schedule
from backendai.scheduler.decide import decide
from tests.effort import examples
from tests.factories import make_agent, make_group, make_image, make_running_session, make_session

pytestmark = pytest.mark.django_db


def spec(**asked):
    return SessionSpec(image="python", resources={"cpu": 1, "mem": "512m", **asked})


def run_pass(group: ResourceGroup) -> None:
    schedule(group, timezone.now())


def why(session: ComputeSession, user):
    return explain(session, user, now=timezone.now())


def test_a_session_that_fits_is_said_to_start_where_the_pass_then_puts_it(cast):
    make_agent("node-1")
    session = make_session(cast.alice)
    said = why(session, cast.alice)
    run_pass(session.resource_group)
    assert (said.verdict, said.agents) == (Verdict.STARTS_NOW, ("node-1",))
    assert session.kernels.get().agent.name == "node-1"


def test_a_session_that_waits_is_told_its_place_and_what_would_help(cast):
    agent = make_agent("node-1", cpu=4)
    make_running_session(cast.bob, agent, resources={"cpu": 3})
    session = make_session(cast.alice, resources={"cpu": 2, "mem": "512m"})
    said = why(session, cast.alice)
    assert (said.verdict, said.reason.code, said.position, said.waiting) == (
        Verdict.WAITS, "insufficient-resources", 1, 1,
    )  # fmt: skip
    assert said.suggestions[0].message == "With 1 CPU core instead of 2 it starts now on node-1."


def test_others_ahead_are_counted_but_not_named(cast):
    make_agent("node-1", cpu=4)
    first = make_session(cast.bob, resources={"cpu": 4, "mem": "512m"})
    make_running_session(cast.bob, Agent.objects.get(), resources={"cpu": 1, "mem": "512m"})
    session = make_session(cast.alice, resources={"cpu": 4, "mem": "512m"})
    mine, admins = why(session, cast.alice), why(session, cast.dana)
    assert (mine.position, mine.ahead_total, mine.ahead) == (2, 1, ())
    assert "blocker" not in mine.reason.details
    assert admins.reason.details["blocker"] == str(first.pk)
    asked = "That session requests 4 CPU cores, 512 MiB of memory."
    behind = "Queued behind a session that does not fit yet (group default runs sessions strictly in order)."
    assert mine.message == f"{behind} {asked}"
    assert admins.message == f"{behind} The session in front is {first.name} of {cast.bob.email}. {asked}"
    assert [other.id for other in admins.ahead] == [first.pk]


def test_a_launch_that_no_agent_could_hold_gets_an_answer_and_not_an_error(cast):
    make_agent("node-1", cpu=4)
    make_image()
    said = preview(cast.alice, spec(cpu=64), now=timezone.now())
    assert (said.verdict, said.reason.code) == (Verdict.NEVER, "bigger-than-any-agent")


def test_a_launch_that_is_wrong_is_refused_as_it_would_be(cast):
    make_agent()
    make_image()
    with pytest.raises(UserError) as refused:
        preview(cast.alice, SessionSpec(image="nothing-like-it"), now=timezone.now())
    assert refused.value.field == "image"


def test_a_preview_writes_nothing(cast):
    make_agent()
    make_image()
    preview(cast.alice, spec(), now=timezone.now())
    assert not ComputeSession.objects.exists()


def test_another_group_with_room_is_suggested(cast):
    full = make_agent("node-1", cpu=2)
    make_running_session(cast.bob, full, resources={"cpu": 2, "mem": "512m"})
    make_agent("node-2", group=make_group("lab"))
    said = preview(cast.alice, spec(), now=timezone.now())
    assert said.verdict == Verdict.WAITS
    assert [(found.group, found.agents) for found in said.suggestions] == [("lab", ("node-2",))]


def test_the_number_of_queries_does_not_grow_with_the_queue(cast, django_assert_max_num_queries):
    make_agent("node-1", cpu=2)
    for _ in range(3):
        make_session(cast.bob, resources={"cpu": 2, "mem": "512m"})
    session = make_session(cast.alice, resources={"cpu": 2, "mem": "512m"})
    session = ComputeSession.objects.select_related("resource_group", "image", "project").get(pk=session.pk)
    with django_assert_max_num_queries(20):
        why(session, cast.alice)


amounts = st.sampled_from([1, 2, 3, 5])


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    agents=st.lists(amounts, min_size=1, max_size=3),
    queue=st.lists(st.tuples(amounts, st.sampled_from([5, 10])), max_size=4),
    asked=amounts,
    kernels=st.sampled_from([1, 1, 2]),
    rules=st.fixed_dictionaries(
        {
            "sequence": st.sampled_from(["fifo", "lifo", "drf", "fair-share"]),
            "selection": st.sampled_from(["concentrated", "dispersed", "round-robin"]),
            "backfill": st.booleans(),
        }
    ),
)
def test_the_next_pass_does_what_the_preview_said(cast, agents, queue, asked, kernels, rules):
    ComputeSession.objects.all().delete()
    Agent.objects.all().delete()
    group = make_group()
    ResourceGroup.objects.filter(pk=group.pk).update(**rules, next_agent="")
    for number, cpu in enumerate(agents):
        make_agent(f"node-{number}", cpu=cpu, group=group)
    for cpu, priority in queue:
        if cpu <= max(agents):
            make_session(cast.bob, resources={"cpu": cpu, "mem": "512m"}, priority=priority)
    make_image()
    wanted = SessionSpec(image="python", resources={"cpu": asked, "mem": "512m"}, cluster_size=kernels)
    said = preview(cast.alice, wanted, now=timezone.now())
    if said.verdict == Verdict.NEVER and said.reason.code == "bigger-than-any-agent" and not said.steps:
        with pytest.raises(UserError):
            create_session(cast.alice, wanted)
        return
    session = create_session(cast.alice, wanted)
    run_pass(ResourceGroup.objects.get(pk=group.pk))
    session.refresh_from_db()
    if said.verdict == Verdict.STARTS_NOW:
        assert session.status == Status.SCHEDULED
        assert {kernel.agent.name for kernel in session.kernels.all()} == set(said.agents)
    else:
        assert (session.status, session.status_reason) == (Status.PENDING, said.reason.code)
        assert said.message.startswith(session.status_message)
        assert session.queue_position == said.position


def test_rules_that_cannot_be_followed_are_an_answer_and_no_suggestion(cast):
    make_agent("node-1", cpu=1)
    make_agent("node-2", group=make_group("sound"))
    ResourceGroup.objects.update(sequence="lottery")
    session = make_session(cast.alice)
    said = why(session, cast.alice)
    assert (said.verdict, said.reason.code) == (Verdict.WAITS, "wrong-group-rules")
    assert "lottery" in said.message
    assert preview(cast.alice, spec(), now=timezone.now()).reason.code == "wrong-group-rules"
    ResourceGroup.objects.filter(name="default").update(sequence="fifo")
    ComputeSession.objects.update(slots={"cpu": "2"})
    Kernel.objects.update(slots={"cpu": "2"})
    assert why(ComputeSession.objects.get(), cast.alice).verdict == Verdict.NEVER


def test_a_session_on_which_the_scheduler_fails_spoils_no_answer_for_others(cast, monkeypatch):
    make_agent("node-1")
    bad, good = make_session(cast.alice), make_session(cast.bob)

    def failing(snapshot):
        if any(each.id == bad.pk for each in snapshot.pending):
            raise ZeroDivisionError
        return decide(snapshot)

    monkeypatch.setattr(deciding, "decide", failing)
    assert why(good, cast.bob).verdict == Verdict.STARTS_NOW
    assert why(bad, cast.alice).reason.code == "scheduler-error"
