"""Documents of people who mean harm, or are careless: each is refused, and nothing is asked of the database."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from pytest_django import DjangoAssertNumQueries

from backendai.base.core.errors import UserError
from backendai.domain.templates.models import Template
from backendai.domain.templates.services.publishing import TemplateDraft, create_template
from tests.cast import Cast

pytestmark = pytest.mark.django_db
NOW = datetime(2031, 1, 2, tzinfo=UTC)
GOOD = (
    "params: {lr: {type: number, default: 0.1}}\nimage: python\ntype: batch\nresources: {cpu: 1, mem: 1g}\n"
    'startup_command: run "$PARAM_LR"\nenviron: {A: "${{ params.lr }}"}\nroles: {worker: {count: 2}}\n'
)


def hostile() -> Iterator[str]:
    """300 documents: bombs, depth, sizes, half texts, keys that there are not, and gaps where none may be."""
    odd = random.Random(7)
    for number in range(30):
        yield "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 'x'}]\n" for n in range(number + 2))
        yield f"image: {'[' * (20 + number * 100)}"
        yield f"image: {'{a: ' * (21 + number * 50)}"
        yield "\n".join(f"{' ' * n}k{n}:" for n in range(25 + number * 8))
        yield f"image: x\n# {'é' * (33000 + number * 1000)}"
        yield f"{GOOD}{odd.choice(['image', 'type', 'params', 'roles'])}: again"
        yield f"{GOOD}{odd.choice(['imag', 'tpe', 'env', 'shmm', 'mount', 'owner', 'launch_id'])}{number}: x"
        yield GOOD.replace("$PARAM_LR", odd.choice(["${{ params.lr }}", "${{params.x}}", "${{ }}", "${{ params.lr"]))
        yield GOOD.replace(
            "cpu: 1", odd.choice(["cpu: -1", "cpu: 1e30", "cpu: .nan", "cpu: [1]", "cpu: no", "../x: 1"])
        )
        yield GOOD[: 20 + number * 4].rstrip("\n") + odd.choice(
            ["\x00", "\x07", "\ud800", "\ufffe", "\n\t\t: :", "\n- ]"]
        )


def test_all_are_refused_with_their_place_and_nothing_is_written(
    cast: Cast, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    documents = [f"# {number}\n{text}" for number, text in enumerate(hostile())]
    assert len(documents) == 300 == len(set(documents))
    refusals = []
    with django_assert_num_queries(0):
        for text in documents:
            with pytest.raises(UserError) as refusal:
                create_template(cast.alice, TemplateDraft("hostile"), text, now=NOW)
            refusals.append(refusal.value)
    without = [error for error in refusals if "line" not in error.details and error.code != "too-large"]
    assert not without, [str(error) for error in without][:5]
    assert {error.code for error in refusals} >= {"invalid-document", "unknown-field", "too-deep", "too-large"}
    assert not Template.objects.exists()


def test_what_they_were_made_of_is_good(cast: Cast) -> None:
    assert create_template(cast.alice, TemplateDraft("good"), GOOD, now=NOW).current.number == 1
