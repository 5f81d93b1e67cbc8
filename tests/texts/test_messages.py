"""Messages keep their values on every way, and doors render them in the reader's language."""

from __future__ import annotations

import copy
import json
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from django import forms
from django.conf import settings
from django.test import Client
from django.utils import timezone
from django.utils.safestring import mark_safe
from django.utils.translation import override

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message, for_column, for_json, shortened
from backendai.base.core.names import check_session_name
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import language_asked_for
from backendai.base.wire.messages import KernelReport, KernelState
from backendai.domain.activity.jobs import start_job
from backendai.domain.activity.models import BackgroundJob
from tests.cast import Cast


@pytest.fixture(autouse=True)
def in_korean() -> Iterator[None]:
    with override("ko"):
        yield


def nested() -> Message:
    cores = Message("{number} CPU cores", number=4)
    return Message(
        "{request} has room for {asked}: {names}", request=Message("No agent"), asked=cores, names=["a", "b"]
    )


def test_an_error_of_a_finished_message_has_its_values() -> None:
    error = UserError(Message("{name} has {count} sessions.", name="gpu", count=2), code="in-use", also="kept")
    assert error.details == {"also": "kept", "name": "gpu", "count": 2}


def test_a_message_is_its_english_text() -> None:
    assert nested() == "No agent has room for 4 CPU cores: a, b"
    assert Message('Such as {"name": 1} or {gap}.') == 'Such as {"name": 1} or {gap}.'
    with pytest.raises(AttributeError):
        nested().template = "other"


@pytest.mark.parametrize("way", [pickle.dumps, copy.deepcopy, Message.data, Message.stored, for_column, for_json])
def test_values_survive_every_way(way: object) -> None:
    sent = way(nested())  # type: ignore[operator]
    back = pickle.loads(sent) if isinstance(sent, bytes) else Message.of(sent)
    assert (back, back.template, back.data()) == (nested(), nested().template, nested().data())


@pytest.mark.parametrize(
    "data",
    ["plain", '{"text": broken', '{"text": 3, "values": []}', {"values": {"a": 1}}, {"text": "{a}", "values": 7}, ""],
)
def test_data_of_any_origin_is_a_message(data: object) -> None:
    assert isinstance(Message.of(data), Message)


def test_deep_and_foreign_values_are_left_out() -> None:
    deep: dict[str, object] = {"text": "{a}", "values": {"a": 1}}
    for _ in range(50):
        deep = {"text": "{a}", "values": {"a": deep, "not in the text": "x" * 1000}}
    assert len(Message.of(deep).stored()) < 1000


def test_a_long_message_becomes_plain_text() -> None:
    long = Message("{names}", names=["x" * 100] * 10)
    assert len(shortened(long)) == 500 and not isinstance(shortened(long), Message)


def test_a_door_renders_nested_messages_lists_and_plain_words() -> None:
    said = in_words(Message("Agent {agent} is not reachable.", agent="gpu-01"))
    assert "gpu-01" in said and "does not answer" not in said
    assert in_words(Message("{number} CPU cores", number=4)) == "4 CPU 코어"
    assert (
        in_words(Message.joined([Message("1 CPU core"), Message("{number} CPU cores", number=4)], "; ")).count("코어")
        == 2
    )
    assert in_words("No agent") == in_words(Message("No agent")) != "No agent"
    for text in ("An entirely new sentence.", "", "train-baseline"):
        assert in_words(text) == text
    safe = mark_safe("<b>Choose another name.</b>")
    assert in_words(safe) is safe, "markup is never taken apart"


def test_a_refusal_keeps_its_numbers_and_code() -> None:
    with pytest.raises(UserError) as refused:
        check_session_name("ab")
    said = in_words(refused.value.message)
    assert said != refused.value.message and "4" in said
    error = UserError("{number} of {names}", number=2, names=(name for name in "ab"), field="name", code="odd")
    assert (error.message, error.details["names"], error.code) == ("2 of a, b", ("a", "b"), "odd")


def test_an_error_of_a_form_is_translated_where_it_is_shown() -> None:
    form = forms.Form({})
    with pytest.raises(UserError) as raised:
        check_session_name("abc")
    form.add_error(None, raised.value.message)
    shown = [in_words(error) for error in form.non_field_errors()]
    assert shown == [in_words(raised.value.message)] and not shown[0].isascii()


def test_what_a_redirect_carries_is_translated_before() -> None:
    """The store of Django's messages keeps text alone: the template and the values of a message would be lost."""
    untranslated = re.compile(r"messages\.\w+\(request, \w+\.message\b")
    doors = Path(settings.BASE_DIR, "backendai", "web").rglob("*.py")
    assert [path.name for path in doors if untranslated.search(path.read_text())] == []


@pytest.mark.django_db
def test_a_stored_message_is_rendered_in_the_language_of_the_reader() -> None:
    job = start_job("kind", "subject", Message("Agent {agent} is not reachable.", agent="gpu-01"), now=timezone.now())
    read = BackgroundJob.objects.get(pk=job.pk)
    assert read.message == "Agent gpu-01 is not reachable." != in_words(read.message)
    BackgroundJob.objects.filter(pk=job.pk).update(message="A row of an earlier version.")
    assert in_words(BackgroundJob.objects.get(pk=job.pk).message) == "A row of an earlier version."


def test_a_report_of_an_agent_carries_values_and_older_agents_carry_text() -> None:
    known = {"kernel_id": uuid4(), "generation": 1, "state": KernelState.TERMINATED}
    report = KernelReport(**known, message=Message("Agent {agent} is not reachable.", agent="a"))
    sent = json.loads(report.model_dump_json())
    assert sent["message"] == "Agent a is not reachable."
    assert KernelReport.model_validate(sent).full_message.values == {"agent": "a"}
    assert KernelReport.model_validate(sent | {"told": None}).full_message == "Agent a is not reachable."
    assert not KernelReport.model_validate(
        sent | {"told": {"text": "{a}", "values": {"a": "x" * 5000}}}
    ).full_message.values


@pytest.mark.parametrize(
    ("header", "language"),
    [("", "en"), ("ko", "ko"), ("ko-KR;q=0.9, en;q=0.8", "ko"), ("de, en;q=0.5, ko;q=0.4", "en"), ("xx;;=", "en")],
)
def test_a_header_names_the_language_that_is_liked_best(header: str, language: str) -> None:
    assert language_asked_for(header) == language


@pytest.mark.django_db
def test_rest_refuses_in_the_language_that_is_asked_for_with_the_same_code(cast: Cast, client: Client) -> None:
    client.force_login(cast.alice)
    body = {"name": "ab", "image": "python"}
    plain, korean = (
        client.post("/api/v1/sessions/", body, "application/json", headers=headers)
        for headers in ({}, {"Accept-Language": "ko"})
    )
    assert plain.status_code == korean.status_code == 400
    assert plain.json()["code"] == korean.json()["code"]
    assert plain.json()["detail"].isascii() and not korean.json()["detail"].isascii()
