"""Documents that nobody should be able to launch: refused fast, with the key, and with nothing written."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from backendai.base.core.errors import UserError
from backendai.base.core.written_documents import read_document
from backendai.domain.pipelines.documents.document import LARGEST, MOST_VALUES, run_document
from backendai.domain.pipelines.elements import MOST_TASKS

HEAD = "defaults: {image: python}\n"
STEP = "startup_command: a"
MOST_CALLS = 350_000  # 50 ms of processor time; the dearest document needs 170,000


def bad() -> Iterator[str]:
    for value in ("0", "-1", "true", "'3'", "1.5", "100000", "[]", "[1, 1]", "[-1]", "{a: 1}", "null, matrix: {a: 1}"):
        yield f"{HEAD}steps: {{one: {{{STEP}, array: {value}}}}}"
    wide = ", ".join(map(str, range(1000)))
    yield f"{HEAD}steps: {{one: {{{STEP}, matrix: {{a: [{wide}], b: [{wide}]}}}}}}"
    for value in ("{a: 1}", "{A: [1]}", "{a: []}", "[1]", "{a: [[1]]}", "{a: [null]}", "{}", "{exclude: [1]}"):
        yield f"{HEAD}steps: {{one: {{{STEP}, matrix: {value}}}}}"
    for value in ("{a: 1}", "[]", "[[1]]", "[null]", "x"):
        yield f"{HEAD}steps: {{one: {{{STEP}, foreach: {value}}}}}"
    yield f"{HEAD}steps: {{one: {{{STEP}, array: 2, foreach: [1]}}}}"
    for value in ("[one]", "[two]", "{one: success}", "3", "{two: never}", "[[1]]", "[null]"):
        yield f"{HEAD}steps: {{one: {{{STEP}, after: {value}}}}}"
    chain = "".join(f"  s{i}: {{{STEP}, after: [s{(i + 1) % 500}]}}\n" for i in range(500))
    yield f"{HEAD}steps:\n{chain}"
    yield f"{HEAD}steps:\n" + "".join(f"  s{i}: {{{STEP}}}\n" for i in range(2000))
    yield f"{HEAD}steps:\n" + "".join(f"  s{i}: {{{STEP}, array: 9000}}\n" for i in range(9))
    yield f"{HEAD}steps: {{one: {{{STEP}, array: 2}}, two: {{{STEP}, array: 3, after: {{one: each}}}}}}"
    for key, value in (
        ("retry", "x"), ("retry", "{times: 99}"), ("retry", "{times: -1}"), ("retry", "{reasons: [never]}"),
        ("retry", "{reasons: ['exit:0']}"), ("retry", "{wait: soon}"), ("retry", "{factor: 99}"),
        ("retry", "{more: {mem: 2}}"), ("retry", "{tims: 1}"), ("at_once", "-1"), ("at_once", "many"),
        ("probe", "1.5"), ("give_up_after", "'500%'"), ("give_up_after", "x"), ("give_up_after", "-1"),
        ("type", "batch"), ("owner", "eve@example.com"), ("depends_on", "[x]"), ("imge", "python"),
        ("resources", "3"), ("environ", "{LD_PRELOAD: x}, matrix: 3"), ("cluster_size", "lots"), ("mounts", "3"),
        ("parameters", "3"), ("template", "[1]"),
    ):  # fmt: skip
        yield f"{HEAD}steps: {{one: {{{STEP}, {key}: {value}}}}}"
    yield from (
        "steps: 3", "steps: []", "steps: {}", "kind: session", "version: 2\nsteps: {one: {}}",
        "workspace: {}\narray: 1",
        "on_failure: maybe\nsteps: {one: {image: python, startup_command: a}}",
        "stesp: {}", "defaults: 3\nsteps: {one: {}}", "params: 3\nsteps: {one: {}}",
        "workspace: {path: x}\nsteps: {one: {image: python, startup_command: a}}",
        "steps: {One: {image: python, startup_command: a}}", "steps: {one: 3}", "steps: {one: {image: python}}",
        "steps: {one: {startup_command: a}}", "finally: {after: [one]}\nsteps: {one: {image: x, startup_command: a}}",
        "steps: {finally: {image: x, startup_command: a}}\nfinally: {image: x, startup_command: a}",
        "params: {x: {type: text}}\nsteps: {one: {image: python, startup_command: 'echo ${{ params.x }}'}}",
        "steps: {one: {image: python, startup_command: a}, one: {image: python, startup_command: b}}",
        "a: &a [1]\nsteps: *a", "steps: !!python/object:os.system {}", "[1]", "", "steps: {one: {image: [}}",
        "image: python\nstartup_command: a", "image: python\nstartup_command: a\narray: 1\ntype: interactive",
        "x: " + "[" * 60 + "]" * 60, "steps: {one: {image: python, startup_command: \"\\0\"}}", "x" * (LARGEST + 1),
    )  # fmt: skip


HOSTILE = list(bad())


def refused(text: str) -> UserError:
    with pytest.raises(UserError) as caught:
        source = read_document(text, largest=LARGEST, most=MOST_VALUES)
        try:
            run_document(source.value, {})
        except UserError as error:
            raise source.placed(error) from None
    return caught.value


def test_each_is_refused_with_a_code_and_its_place() -> None:
    for text in HOSTILE:
        error = refused(text)
        assert error.code and error.message, text[:80]
        if error.field and error.field.partition(".")[0] in text and ":" in text:
            assert error.details.get("line"), (text[:80], error.field, error.message)


def test_damaged_documents_are_refused_or_read_and_nothing_else() -> None:
    chance = random.Random(7)
    good = f"{HEAD}steps:\n  one: {{{STEP}}}\n  two: {{{STEP}, after: [one], matrix: {{a: [1, 2]}}}}\n"
    for _ in range(250):
        letters = list(good)
        for _ in range(chance.randint(1, 4)):
            letters[chance.randrange(len(letters))] = chance.choice("{}[]:,\"'&*!|>\t\n-?%@`\0é")
        try:
            run_document(read_document("".join(letters), largest=LARGEST, most=MOST_VALUES).value, {})
        except UserError as error:
            assert error.code


def test_the_largest_document_that_is_right_is_read() -> None:
    text = f"{HEAD}steps:\n  one: {{{STEP}, array: {MOST_TASKS}}}\n"
    assert run_document(read_document(text).value, {}).size == MOST_TASKS


def calls_of(work: Callable[[], object]) -> int:
    """Return how many functions the work calls: a measure of its time that is the same on every machine."""
    calls = 0

    def count(_frame: FrameType, event: str, _of: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    former = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(former)
    return calls


@pytest.mark.long
def test_none_makes_the_portal_work_for_long() -> None:
    refused(HOSTILE[0])  # loads what is loaded once
    dearest = max(HOSTILE, key=lambda text: calls_of(lambda: refused(text)))
    assert calls_of(lambda: refused(dearest)) < MOST_CALLS, dearest[:80]
