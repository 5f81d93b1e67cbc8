"""The rules of a resource group: what cannot be carried out is refused when it is saved."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ValidationError

from backendai.domain.cluster.groups.rules import strategies
from backendai.domain.cluster.models import ResourceGroup


@pytest.mark.django_db
@pytest.mark.parametrize("sequence", sorted(strategies("sequence")))
@pytest.mark.parametrize("selection", sorted(strategies("selection")))
def test_every_strategy_of_the_scheduler_can_be_chosen(sequence: str, selection: str) -> None:
    assert ResourceGroup.objects.create(name="g", sequence=sequence, selection=selection).pk


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("sequence", "random", "Unknown sequence 'random': choose one of "),
        ("selection", "anywhere", "Unknown selection 'anywhere': choose one of "),
        ("allowed_session_types", ["interactive", "odd"], "Unknown session type 'odd'"),
        ("allowed_session_types", "batch", "Choose one or more of interactive, batch, inference, system."),
        ("slot_order", ["cpu", "Not A Slot"], "'Not A Slot' is not a resource name"),
        ("slot_order", ["cpu", "mem", "cpu"], "cpu is listed twice"),
        ("slot_order", {"cpu": 1}, "Write a list of slots"),
        ("pull_timeout", timedelta(seconds=-1), "It is -1 s; more than 0 is required."),
        ("create_timeout", timedelta(0), "It is 0 s; more than 0 is required."),
        ("terminate_timeout", timedelta(seconds=-5), "It is -5 s; more than 0 is required."),
        ("pending_timeout", timedelta(seconds=-5), "It is -5 s; 0 or more is required."),
        ("overtaking_limit", timedelta(days=-1), "It is -86400 s; 0 or more is required."),
        ("agent_lost_grace", timedelta(seconds=-5), "It is -5 s; 0 or more is required."),
        ("pull_timeout", timedelta(days=5000), "It is 5000 days; at most 3650 are allowed."),
        ("app_domain", "10.0.0.1", "'10.0.0.1' is not a domain"),
        ("app_domain", "Apps.Example.org", "is not a domain"),
        ("app_domain", "apps.example.org:81", "is not a domain"),
        ("app_domain", "example.net", "contains the portal's own name portal.example.net"),
        ("app_domain", "portal.example.net", "contains the portal's own name portal.example.net"),
        ("app_domain", "apps.portal.example.net", "apps could send cookies to it"),
        ("usage_half_life", timedelta(0), "choose 1 to 365 days."),
        ("usage_half_life", timedelta(hours=3), "choose 1 to 365 days."),
    ],
)
def test_a_rule_that_cannot_be_carried_out_is_refused_at_its_field(
    field: str, value: Any, text: str, settings: Any
) -> None:
    settings.PORTAL_URL = "https://portal.example.net"
    for act in (
        lambda: ResourceGroup.objects.create(name="g", **{field: value}),
        lambda: ResourceGroup(name="g", **{field: value}).clean(),
    ):
        with pytest.raises(ValidationError) as caught:
            act()
        assert list(caught.value.message_dict) == [field]
        assert text in " ".join(caught.value.message_dict[field])
    assert not ResourceGroup.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize("field", ["retries_to_skip", "give_up_after", "max_kernels_per_agent", "max_retries"])
def test_a_negative_number_is_refused_at_its_field(field: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ResourceGroup.objects.create(name="g", **{field: -1})
    assert list(caught.value.message_dict) == [field]


@pytest.mark.django_db
def test_several_wrong_rules_are_named_at_once_and_a_good_group_stays_as_it_was() -> None:
    group = ResourceGroup.objects.create(name="g")
    group.sequence, group.slot_order, group.pull_timeout = "x", ["!"], timedelta(0)
    with pytest.raises(ValidationError) as caught:
        group.save()
    assert set(caught.value.message_dict) == {"sequence", "slot_order", "pull_timeout"}
    group.refresh_from_db()
    assert group.sequence == "fifo"


def test_an_unknown_default_sequence_is_refused_at_start(settings: Any) -> None:
    def found() -> list[Any]:
        return [message for message in run_checks() if message.id == "cluster.E001"]

    assert found() == []
    settings.DEFAULT_SEQUENCE = "random"
    [error] = found()
    assert error.msg == "BACKENDAI_DEFAULT_SEQUENCE: unknown sequence 'random'."
    assert "fifo" in error.hint


@pytest.mark.django_db
def test_a_new_group_gets_the_default_sequence_of_the_installation(settings: Any) -> None:
    settings.DEFAULT_SEQUENCE = "lifo"
    assert ResourceGroup.objects.create(name="g").sequence == "lifo"
