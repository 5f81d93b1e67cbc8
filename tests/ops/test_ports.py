"""Two ``bin/up`` that start at once on one machine choose different ports."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest

from backendai.ops import up
from backendai.ops.fleet import Choice
from backendai.ops.ports import Claims, ssh_port


def decided(claims: Claims, data: Path, *more: str) -> Choice:
    return up._decide(up._parser().parse_args(["--data", str(data), "--no-agent", *more]), claims)


def ports_of(choice: Choice) -> set[int]:
    return {choice.apps_port, choice.ssh_port, int(choice.files_bind.rpartition(":")[2])}


def test_what_one_has_chosen_and_not_bound_yet_is_not_chosen_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BACKENDAI_FILES_BIND", raising=False)
    with closing(Claims()) as ours, closing(Claims()) as theirs:
        one, other = decided(ours, tmp_path / "one"), decided(theirs, tmp_path / "other")
        assert len(ports_of(one) | ports_of(other)) == 6
        told = decided(ours, tmp_path / "one", "--ssh-port", str(other.ssh_port + 1))
        assert ssh_port(theirs, "127.0.0.1") != told.ssh_port


def test_a_port_is_free_again_when_its_bin_up_has_ended() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with closing(Claims()) as theirs:
        with closing(Claims()) as ours:
            assert ours.choose("127.0.0.1", [port]) == port != theirs.choose("127.0.0.1", [port])
        with socket.create_server(("127.0.0.1", port)):
            assert theirs.choose("127.0.0.1", [port]) != port
        assert theirs.choose("127.0.0.1", [port]) == port
