"""What the portal makes of the words of a node that lies, errs or was taken over."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import annotated_types
import pytest
from pydantic import AfterValidator, ValidationError

from backendai.base import wire
from backendai.base.wire.fields import Message, Order
from backendai.base.wire.messages import JoinUp, KernelReport, Note, SyncDown


def report(**over: Any) -> KernelReport:
    return KernelReport.model_validate({"kernel_id": uuid4(), "generation": 1, "state": "PULLING", **over})


@pytest.mark.parametrize(
    ("said", "kept"),
    [(0.25, 0.25), (None, None), (1.5, 1.0), (-3e300, 0.0), (float("inf"), None), (float("nan"), None)],
)
def test_it_keeps_progress_between_nothing_and_all(said: float | None, kept: float | None) -> None:
    assert report(progress=said).progress == kept


def test_it_cuts_words_to_what_can_be_stored_and_shown() -> None:
    cut = report(message="m" * 100_000, reason="r\0" * 100, container_id="c" * 5000)
    assert (len(cut.message), cut.reason, len(cut.container_id)) == (500, "r" * 64, 64)
    assert len(Note(code="c", message="m" * 1000).message) == 500


def messages_of(kind: type[Message]) -> Iterator[type[Message]]:
    for one in kind.__subclasses__():
        if not issubclass(one, Order) and one.__module__.startswith(wire.__name__):  # a benchmark has its own
            yield one
            yield from messages_of(one)


def test_every_number_that_an_agent_sends_has_its_ends() -> None:
    for module in pkgutil.iter_modules(wire.__path__):
        importlib.import_module(f"backendai.base.wire.{module.name}")
    limits = (annotated_types.Le, annotated_types.Lt, AfterValidator)
    free = [
        f"{kind.__name__}.{name}"
        for kind in messages_of(Message)
        for name, field in kind.model_fields.items()
        if re.search(r"\b(int|float)\b", str(field.annotation))
        and not any(isinstance(one, limits) for one in field.metadata)
    ]
    assert free == ["KernelReport.timings"], "those are cut where they are used, as they are only shown"
    with pytest.raises(ValidationError):
        report(generation=10**400)


def test_it_refuses_an_exit_code_that_no_process_has() -> None:
    with pytest.raises(ValidationError):
        report(exit_code=10**30)


@pytest.mark.parametrize("url", ["", "http://10.0.0.1:8090", "https://[fd00::1]:8090/", "https://proxy.example/node-1"])
def test_it_takes_the_address_of_a_gateway(url: str) -> None:
    assert JoinUp(token="t", name="n1", gateway_url=url).gateway_url == url


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.1/?a=",
        "http://10.0.0.1/#",
        "http://me:you@10.0.0.1",
        "file:///etc",
        "http://",
        "http://a b",
        "h" * 300,
    ],
)
def test_it_refuses_an_address_that_would_bend_what_the_portal_asks_for(url: str) -> None:
    with pytest.raises(ValidationError):
        JoinUp(token="t", name="n1", gateway_url=url)


def test_each_side_leaves_out_what_a_later_version_of_the_other_says() -> None:
    down = {"deployment": "lab", "public_key": "k", "interval": 5.0, "from_the_future": 1}
    assert SyncDown.model_validate(down).deployment == "lab"
    assert "from_the_future" not in report(from_the_future=1).model_dump()
