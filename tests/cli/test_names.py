"""Names, IDs and their beginnings; completion; exit codes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete

from bai.__main__ import run
from bai.commands.root import cli
from bai.names import pick
from bai.sdk.call import Problem
from bai.sdk.nouns import Folder
from tests.cli.stub import Stub, stub_portal

FOLDERS = [Folder(id, name) for id, name in (("11aa22", "data"), ("11bb33", "data-2"), ("22cc44", "corpus"))]
ID = "0b1f7d1e-6b0f-4f0f-9a52-6d3a2e1f0c11"


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command line against prepared answers; returns its exit code and what was asked."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("BAI_TOKEN", "secret")
    monkeypatch.setattr("bai.sdk.client.time.sleep", lambda seconds: None)

    def ask(*words: str, answers: list[tuple[Any, ...]]) -> tuple[int, Stub]:
        with stub_portal(*answers) as stub:
            monkeypatch.setenv("BAI_URL", stub.url)
            return run(list(words)), stub

    return ask


def page(*names: str, **more: Any) -> tuple[int, dict[str, Any]]:
    return 200, {"results": [{"id": f"{number}-{name}", "name": name} | more for number, name in enumerate(names)]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("data", "data"), ("data-", "data-2"), ("c", "corpus"), ("22cc44", "corpus"), ("11BB", "data-2")],
)
def test_a_name_its_beginning_or_that_of_an_id_is_enough(text: str, expected: str) -> None:
    assert pick(FOLDERS, text, "folder").name == expected


def test_what_can_be_several_names_the_candidates() -> None:
    with pytest.raises(Problem, match=r"data \(11aa22\), data-2 \(11bb33\)") as caught:
        pick(FOLDERS, "da", "folder")
    assert caught.value.code == "ambiguous-name"
    with pytest.raises(Problem) as caught:
        pick(FOLDERS, "11", "folder")  # too short for an ID
    assert caught.value.status == 404


def test_a_live_session_comes_before_an_ended_one_of_the_same_name(asked: Any) -> None:
    code, stub = asked("why", "train", answers=[page("train"), (200, {"message": "It runs.", "suggestions": []})])
    assert code == 0 and [one.path for one in stub.asked] == [
        "/api/v1/sessions/?page_size=100&live=true&search=train",
        "/api/v1/sessions/0-train/explain/",
    ]


def test_of_ended_sessions_the_newest_of_just_that_name_is_meant(asked: Any) -> None:
    code, stub = asked("show", "train", "-q", answers=[page(), page("train-2", "train", "train", status="TERMINATED")])
    assert code == 0 and "live=false" in stub.asked[-1].path


def test_an_id_is_asked_for_alone(asked: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, stub = asked("show", ID, "-o", "name", answers=[(200, {"id": ID, "name": "train"})])
    assert (code, capsys.readouterr().out, len(stub.asked)) == (0, "train\n", 1)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((400, {"code": "x", "detail": "Too much."}), 1),
        ((409, {"code": "x", "detail": "Not now."}), 1),
        ((403, {"code": "token-scope", "detail": "Not with this token."}), 1),
        ((404, {"code": "x", "detail": "Not there."}), 3),
        ((401, {"code": "x", "detail": "Who?"}), 4),
        ((503, {"code": "x", "detail": "Busy."}), 5),
        ((0, None), 5),
    ],
)
def test_exit_codes_tell_scripts_what_went_wrong(
    asked: Any, answer: tuple[int, Any], expected: int, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = asked("image", "ls", answers=[answer])
    assert code == expected
    told = capsys.readouterr()
    assert (
        told.out == ""
        and "secret" not in told.err
        and (told.err.startswith(answer[1]["detail"]) if answer[1] else True)
    )


def test_a_wrong_command_line_is_usage(asked: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["nonsense"], ["ps", "--nonsense"], ["run"], ["extend", ID, "--by", "soon"], ["cp", "a", "b"]):
        assert asked(*words, answers=[(200, {"id": ID, "name": "x"})])[0] == 2, words
    assert "Error: " in capsys.readouterr().err


def test_a_code_and_the_errors_of_each_field_are_told(asked: Any, capsys: pytest.CaptureFixture[str]) -> None:
    errors = [{"field": "image", "code": "a", "detail": "None."}, {"field": "cpu", "code": "b", "detail": "Less."}]
    asked(
        "-v", "image", "ls", answers=[(400, {"code": "many", "detail": "None.", "errors": errors, "data": {"a": "1"}})]
    )
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["image: None.", "cpu: Less.", "code many, status 400, {'a': '1'}"]


def completed(words: list[str], typed: str) -> list[str]:
    return [one.value for one in ShellComplete(cli, {}, "bai", "_BAI_COMPLETE").get_completions(words, typed)]


def test_a_shell_completes_commands_and_live_names_for_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("BAI_TOKEN", "secret")
    with stub_portal(page("train-1", "train-2", "notes")) as stub:
        monkeypatch.setenv("BAI_URL", stub.url)
        assert completed([], "po") == ["port-forward"]
        assert completed(["logs"], "tr") == ["train-1", "train-2"]
        assert completed(["ssh"], "n") == ["notes"] and len(stub.asked) == 1
        (names,) = (tmp_path / "bai/names").iterdir()
        os.utime(names, (0, 0))
        assert completed(["rm", "train-1"], "n") == ["notes"] and len(stub.asked) == 2
    os.utime(names, (0, 0))
    assert completed(["logs"], "tr") == []  # the portal is away


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_asks_the_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    assert "_BAI_COMPLETE" in capsys.readouterr().out


MINE = (200, {"email": "me@example.com"})


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        (["rm", "train"], page("train-eval", owner="me@example.com")),
        (["rm", "train"], page("train", owner="other@example.com")),
        (["rename", "train", "new"], page("train-eval", owner="me@example.com")),
        (["folder", "rm", "train"], page("train-eval", owner="me@example.com")),
        (["folder", "rm", "train"], page("train", owner="other@example.com")),
        (["folder", "share", "train", "x@example.com"], page("train-eval", owner="me@example.com")),
        (["admin", "drain", "train"], page("train-eval")),
    ],
)
def test_what_changes_for_good_wants_the_whole_name_of_ones_own(
    words: list[str], rows: Any, asked: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    code, stub = asked(*words, answers=[MINE, rows])
    assert code == 3 and {one.method for one in stub.asked} == {"GET"}
    assert "whole names of your own, and IDs" in capsys.readouterr().err


def test_ones_own_session_is_ended_by_its_name_and_that_of_others_by_its_id(asked: Any) -> None:
    answers = [MINE, page("train-eval", "train", owner="me@example.com"), (200, {"refused": []})]
    code, stub = asked("rm", "train", answers=answers)
    assert code == 0 and stub.asked[1].path.endswith("live=true&search=train&owner=me%40example.com")
    assert stub.asked[-1].body["sessions"] == ["1-train"]
    other = (200, {"id": ID, "name": "train", "owner": "other@example.com"})
    code, stub = asked("rm", ID, answers=[other, (200, {"refused": []})])
    assert code == 0 and stub.asked[-1].body["sessions"] == [ID]


def test_a_folder_of_a_project_and_an_agent_have_no_owner_to_tell_apart(asked: Any) -> None:
    for words in (["folder", "rm", "gpu-1"], ["admin", "drain", "gpu-1"]):
        answers = [MINE, page("gpu-1", owner=None), (200, {"id": "1", "name": "gpu-1"})]
        code, stub = asked(*words, answers=answers)
        assert code == 0 and "0-gpu-1" in stub.asked[-1].path
