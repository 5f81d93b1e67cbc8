"""Tables, tab-separated values, JSON and YAML."""

from __future__ import annotations

import json
import unicodedata
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from bai.__main__ import run
from bai.output import ago, amounts, columns, show, show_one, size, yaml_lines
from bai.sdk.nouns import Session
from bai.state import tell
from bai.waiting import why_lines
from tests.cli.stub import stub_portal

SESSIONS = [
    Session.of({"id": "1-a", "name": "train", "status": "RUNNING", "created_at": "2026-05-04T12:00:00.5Z", "new": 1}),
    Session.of({"id": "2-b", "name": "세션", "status": "PENDING\x1b[31m", "created_at": None}),
]
COLUMNS = columns("*id name status created_at")


class Terminal:
    """What a terminal is to the command."""

    def isatty(self) -> bool:
        return True


def written(capsys: pytest.CaptureFixture[str], **options: Any) -> list[str]:
    show(SESSIONS, COLUMNS, **options)
    return capsys.readouterr().out.splitlines()


def test_a_pipe_gets_tab_separated_values_with_a_heading(capsys: pytest.CaptureFixture[str]) -> None:
    heading, first, second = written(capsys)
    assert heading == "NAME\tSTATUS\tCREATED AT"
    assert first == "train\tRUNNING\t2026-05-04T12:00:00.500000+00:00"
    assert second == "세션\tPENDING [31m\t"  # nothing in a name reaches the terminal as a command


def test_wide_columns_are_aligned_by_their_width_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    heading, first, second = written(capsys, output="wide")
    assert heading.startswith("ID   NAME   STATUS")
    assert second.startswith("2-b  세션   PENDING") and first.startswith("1-a  train  RUNNING")


def test_ids_and_names_stand_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert written(capsys, quiet=True) == ["1-a", "2-b"]
    assert written(capsys, output="name") == ["train", "세션"]


def test_json_and_yaml_have_everything_that_was_answered(capsys: pytest.CaptureFixture[str]) -> None:
    bodies = [dict(one.data) for one in SESSIONS]
    assert json.loads("\n".join(written(capsys, output="json"))) == bodies
    assert yaml.safe_load("\n".join(written(capsys, output="yaml"))) == bodies


def test_one_thing_has_a_line_for_each_value_that_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    show_one(SESSIONS[1], COLUMNS)
    assert capsys.readouterr().out.splitlines() == ["id\t2-b", "name\t세션", "status\tPENDING [31m"]


@pytest.mark.parametrize(
    "value",
    [
        {"a": 1, "b": [1, {"c": None, "d": [True, "x"]}, [2, 3]], "e": {}, "f": [], "g": {"h": {"i": 1.5}}},
        {
            "yes": "no",
            "null": "~",
            "n": "12:30",
            "spaced": " x ",
            "multi": "a\nb",
            "": "",
            "colon": "a: b",
            "0755": "1e3",
        },
        ["- x", "#c", "plain words", "2026-05-04", "ok-1", "=", "True", "off"],
        "text",
        [],
        {},
    ],
)
def test_yaml_is_read_back_as_it_was(value: Any) -> None:
    assert yaml.safe_load("\n".join(yaml_lines(value))) == value


def test_sizes_amounts_and_times_are_short() -> None:
    assert [size(one) for one in (0, 1023, 1536, 2**30, "1610612736", None)] == [
        "0B",
        "1023B",
        "1.5K",
        "1G",
        "1.5G",
        "",
    ]
    assert amounts({"cpu": "2", "mem": str(2**31)}) == "cpu=2 mem=2G"
    now = datetime(2026, 5, 4, tzinfo=UTC)
    moments = [now - timedelta(seconds=30), now - timedelta(hours=5), now + timedelta(days=3)]
    assert [ago(one, now) for one in moments] == ["30s", "5h", "in 3d"]


HOSTILE = "a\x1b]0;x\x07\x9b31m\nb"


@pytest.mark.parametrize("output", ["table", "wide", "tsv", "name", "json", "yaml"])
def test_no_name_commands_the_terminal(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    show([{"id": HOSTILE, "name": HOSTILE}], columns("*id name"), output=output)
    show([{"id": HOSTILE}], (), quiet=True)
    written = capsys.readouterr().out
    assert not {letter for letter in written if unicodedata.category(letter) == "Cc"} - {"\n", "\t"}
    if output in ("json", "yaml"):
        assert yaml.safe_load(written.rpartition("a ")[0]) == [{"id": HOSTILE, "name": HOSTILE}]


def test_no_message_of_the_portal_commands_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    tell(HOSTILE)
    for line in why_lines({"message": HOSTILE, "suggestions": [{"message": HOSTILE}]}):
        tell(line)
    with stub_portal((409, {"code": "x", "detail": HOSTILE})) as stub, pytest.MonkeyPatch.context() as patch:
        patch.setenv("BAI_URL", stub.url)
        patch.setenv("BAI_TOKEN", "secret")
        assert run(["image", "ls"]) == 1
    written = capsys.readouterr()
    assert written.err.count("a ]0;x  31m\nb") == 4 and "\x9b" not in written.err
    assert "\x9b" not in "".join(why_lines({"message": HOSTILE}))
