"""Labels and notes of sessions: their rules, what kernels see of them, and finding sessions by them."""

from __future__ import annotations

from typing import Any

import pytest

from backendai.base.core.errors import UserError
from backendai.base.core.labels import check_labels, check_note, label_variables, labels_in
from backendai.domain.accounts.models import ResourcePolicy
from backendai.domain.accounts.services.policies import write_policy
from backendai.domain.activity.models import AuditEntry
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.querysets import with_labels
from backendai.domain.compute.services.agents.kernel_specs import spec_for
from backendai.domain.compute.services.launching.create import check_launch, create_session
from backendai.domain.compute.services.launching.recent import parameters_of
from backendai.domain.compute.services.launching.renaming import label_session
from backendai.domain.compute.spec import SessionSpec
from tests.cast import Cast
from tests.factories import make_agent, make_image, make_running_session, make_session

LABELS = {"experiment": "lr sweep", "team/name": "vision=2", "7": "a.b"}


@pytest.mark.parametrize(
    ("labels", "code", "words"),
    [
        ({"Upper": "x"}, "invalid-label", "'Upper' is not a label: use 1 to 63 of a–z"),
        ({"a" * 64: "x"}, "invalid-label", "is not a label"),
        ({"ends-": "x"}, "invalid-label", "at both ends"),
        ({"": "x"}, "invalid-label", "is not a label"),
        ({"a\n": "x"}, "invalid-label", "is not a label"),
        ({"backendai/run": "x"}, "reserved-label", "reserved for the platform"),
        ({"a": "x" * 129}, "invalid-label", "at most 128 characters (129 given)"),
        ({"a": "x\ny"}, "invalid-label", "The value of a has an invisible character"),
        ({"a": "x\u202ey"}, "invalid-label", "invisible"),
        ({f"k{number}": "" for number in range(17)}, "invalid-label", "at most 16 labels (17 given)"),
    ],
)
def test_a_wrong_label_is_refused_with_a_sentence(labels: dict[str, str], code: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        check_labels(labels)
    assert (caught.value.field, caught.value.code) == ("labels", code)
    assert words in caught.value.message


def test_labels_are_read_from_lines_and_a_line_that_says_none_is_named() -> None:
    assert labels_in("b = two words \r\n\na=x=y\n") == {"a": "x=y", "b": "two words"}
    for text, words in (("a=1\nnonsense", "Line 2: write key=value"), ("a=1\na=2", "Line 2: a is set twice")):
        with pytest.raises(UserError, match=words):
            labels_in(text)


def test_a_note_has_lines_but_no_control_characters() -> None:
    assert check_note(" one\r\ntwo\tthree ") == "one\ntwo\tthree"
    for text in ("x" * 501, "a\x1bb", "a\ud800b"):
        with pytest.raises(UserError) as caught:
            check_note(text)
        assert caught.value.field == "note"


@pytest.mark.django_db
def test_a_launch_stores_them_and_its_kernels_read_the_labels(cast: Cast) -> None:
    agent = make_agent()
    session = make_running_session(cast.alice, agent, labels=LABELS, note=" Try 1 ")
    assert (session.labels, session.note) == (LABELS, "Try 1")
    environ = spec_for(agent, session.kernels.get().pk).environ
    names = {"BACKENDAI_LABEL_EXPERIMENT", "BACKENDAI_LABEL_TEAM_NAME", "BACKENDAI_LABEL_7"}
    assert {name: environ[name] for name in names} == label_variables(LABELS)
    label_session(session, cast.alice, labels=dict.fromkeys(LABELS) | {"phase": "two"}, note="")
    again = parameters_of(session)
    assert (again["labels"], "note" in again) == ({"phase": "two"}, False)


@pytest.mark.django_db
def test_labels_change_after_the_end_one_by_one_and_audited(cast: Cast) -> None:
    session = make_session(cast.alice, labels={"a": "1", "b": "2"}, note="old")
    ComputeSession.objects.filter(pk=session.pk).update(status="TERMINATED")
    label_session(session, cast.dana, labels={"a": None, "c": "3"})
    assert (session.labels, session.note, session.version) == ({"b": "2", "c": "3"}, "old", 1)
    entry = AuditEntry.objects.get(action="session.label")
    assert entry.actor == cast.dana
    assert entry.details["changes"] == {"labels": [{"a": "1", "b": "2"}, {"b": "2", "c": "3"}]}
    label_session(session, cast.alice, labels={"c": "3"}, note="old")
    assert AuditEntry.objects.filter(action="session.label").count() == 1
    with pytest.raises(UserError, match="reserved"):
        label_session(session, cast.alice, labels={"backendai/x": "1"})


@pytest.mark.django_db
@pytest.mark.postgres
def test_sessions_are_found_by_keys_and_values_on_both_databases(cast: Cast) -> None:
    made = {
        name: make_session(cast.alice, name=name, labels=labels).name
        for name, labels in {"first": LABELS, "second": {"experiment": "other", "a.b/c": ""}, "third": {}}.items()
    }
    for texts, names in (
        (["experiment"], {"first", "second"}),
        (["experiment=lr sweep"], {"first"}),
        (["experiment", "a.b/c"], {"second"}),
        (["a.b/c="], {"second"}),
        (["team/name=vision=2"], {"first"}),
        (["7=a.b"], {"first"}),
        (["7"], {"first"}),
        (["experiment=lr"], set()),
        (["a"], set()),
        (['a"b'], set()),
        (["'; --"], set()),
        ([], set(made)),
    ):
        found = with_labels(ComputeSession.objects.filter(owner=cast.alice), texts)
        assert set(found.values_list("name", flat=True)) == names, texts


@pytest.mark.django_db
def test_a_policy_requires_labels_of_launches_and_of_changes(cast: Cast) -> None:
    make_agent()
    make_image()
    policy = ResourcePolicy.objects.create(name="strict", required_labels=["team", "cost-center"])
    type(cast.alice).objects.filter(pk=cast.alice.pk).update(policy=policy)
    cast.alice.refresh_from_db()

    def refused(**more: Any) -> UserError:
        with pytest.raises(UserError) as caught:
            check_launch(cast.alice, spec(**more))
        return caught.value

    def spec(**more: Any) -> SessionSpec:
        return SessionSpec(image="python", resources={"cpu": 1, "mem": "512m"}, **more)

    error = refused(labels={"team": " "})
    assert (error.field, error.code) == ("labels", "missing-label")
    assert error.message == "Add the labels that a policy requires: cost-center, team."
    session = create_session(cast.alice, spec(labels={"team": "vision", "cost-center": "12"}))
    with pytest.raises(UserError, match="cost-center"):
        label_session(session, cast.alice, labels={"cost-center": None})
    label_session(session, cast.alice, labels={"team": "audio"})
    assert ComputeSession.objects.get().labels == {"team": "audio", "cost-center": "12"}
    with pytest.raises(UserError, match="not a label"):
        write_policy(None, policy, {"required_labels": ["No"]})
