"""Two ``bin/up`` that start at once on one machine choose different ports."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from pathlib import Path

import pytest

from backendai.ops.run import data_folder, up
from backendai.ops.run.fleet import Choice
from backendai.ops.run.ports import PortClaims, ssh_port


def decided(claims: PortClaims, data: Path, *more: str) -> Choice:
    return up._decide(up._parser().parse_args(["--data", str(data), "--no-agent", *more]), claims)


def ports_of(choice: Choice) -> set[int]:
    return {choice.apps_port, choice.ssh_port, int(choice.files_bind.rpartition(":")[2])}


def test_what_one_has_chosen_and_not_bound_yet_is_not_chosen_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BACKENDAI_FILES_BIND", raising=False)
    with closing(PortClaims()) as ours, closing(PortClaims()) as theirs:
        one, other = decided(ours, tmp_path / "one"), decided(theirs, tmp_path / "other")
        assert len(ports_of(one) | ports_of(other)) == 6
        told = decided(ours, tmp_path / "one", "--ssh-port", str(other.ssh_port + 1))
        assert ssh_port(theirs, "127.0.0.1") != told.ssh_port


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("--port", "--port N or BACKENDAI_PORT=N"),
        ("--apps-port", "--apps-port N or BACKENDAI_APPS_PORT=N"),
        ("--ssh-port", "--ssh-port N or BACKENDAI_SSH_PORT=N"),
        ("", "BACKENDAI_FILES_BIND=ADDRESS:N"),
    ],
)
def test_a_given_port_that_another_bin_up_has_chosen_and_not_bound_yet_is_refused_by_its_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str, advice: str
) -> None:
    with closing(PortClaims()) as theirs, closing(PortClaims()) as free:
        taken, portal = (claims.choose("127.0.0.1", []) for claims in (theirs, free))
        free.close()
        monkeypatch.setenv("BACKENDAI_FILES_BIND", "" if option else f"127.0.0.1:{taken}")
        words = ["--port", str(portal), *([option, str(taken)] if option else []), "--no-agent"]
        assert up.main([*words, "--data", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said == (
        f"Port {taken} belongs to another bin/up on this machine, which runs or is starting. "
        f"Choose another with {advice}, or stop the other bin/up.\n"
    )


def test_a_given_port_may_be_claimed_by_another_at_another_address() -> None:
    with closing(PortClaims()) as theirs, closing(PortClaims()) as ours, closing(PortClaims()) as others:
        taken = theirs.choose("127.0.0.1", [])
        ours.keep("127.0.0.2", taken)
        others.keep("127.0.0.1", taken)
        assert (ours.refused, others.refused) == (set(), {taken})


def test_a_second_start_on_a_folder_is_told_of_the_first_and_not_of_its_port(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(PortClaims()) as claims:
        running = data_folder.lock(tmp_path)
        port = claims.choose("127.0.0.1", [])
        assert up.main(["--port", str(port), "--data", str(tmp_path), "--no-agent"]) == 1
        os.close(running)
    assert "already runs" in capsys.readouterr().err


def test_a_port_is_free_again_when_its_bin_up_has_ended() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with closing(PortClaims()) as theirs:
        with closing(PortClaims()) as ours:
            assert ours.choose("127.0.0.1", [port]) == port != theirs.choose("127.0.0.1", [port])
        with socket.create_server(("127.0.0.1", port)):
            assert theirs.choose("127.0.0.1", [port]) != port
        assert theirs.choose("127.0.0.1", [port]) == port
