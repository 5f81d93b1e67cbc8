"""What an agent is told: who goes first, what is refused, and what it offers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backendai.agent.gateway.thread import listen, public_url
from backendai.agent.settings.config import read_settings
from backendai.agent.settings.credentials import Credentials, load_credentials, save_credentials
from backendai.base.core.errors import UserError
from backendai.base.core.slots import Slots

MACHINE = Slots.parse({"cpu": 8, "mem": "20g"})


def test_it_lets_the_command_line_go_before_the_environment() -> None:
    environ = {"BACKENDAI_AGENT_NAME": "from-env", "BACKENDAI_AGENT_BACKEND": "docker", "BACKENDAI_DATA": "/srv"}
    settings = read_settings(environ, {"name": "told", "backend": None})
    assert (settings.name, settings.backend) == ("told", "docker")
    assert settings.data == Path("/srv/agents/told")


def test_it_makes_a_name_of_any_host_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for host, name in [
        ("GPU_01.lab.example", "gpu-01-lab-example"),
        ("-x-", "x"),
        ("___", "node"),
        ("a" * 80, "a" * 63),
    ]:
        monkeypatch.setattr("backendai.agent.settings.config.socket.gethostname", lambda host=host: host)
        assert read_settings({}, {}).name == name


def test_it_keeps_a_share_of_the_memory_for_the_machine() -> None:
    offered = read_settings({}, {}).offered(MACHINE)
    assert offered.to_json() == {"cpu": "8", "mem": str(20 * 2**30 - 20 * 2**30 // 20)}
    small = read_settings({}, {}).offered(Slots.parse({"cpu": 1, "mem": "2g"}))
    assert small.to_json()["mem"] == str(2 * 2**30 - 512 * 2**20)


def test_it_offers_what_it_was_told_to() -> None:
    environ = {"BACKENDAI_AGENT_RESERVE_CPU": "1.5", "BACKENDAI_AGENT_RESERVE_MEM": "4g"}
    assert read_settings(environ, {}).offered(MACHINE) == Slots.parse({"cpu": "6.5", "mem": "16g"})
    environ = {"BACKENDAI_AGENT_SLOTS": "cpu=4, mem=8g,cuda.shares=2.5"}
    assert read_settings(environ, {}).offered(MACHINE) == Slots.parse({"cpu": 4, "mem": "8g", "cuda.shares": "2.5"})


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("BACKENDAI_AGENT_NAME", "under_score"),
        ("BACKENDAI_AGENT_BACKEND", "podman"),
        ("BACKENDAI_AGENT_SLOTS", "cpu"),
        ("BACKENDAI_AGENT_RESERVE_MEM", "much"),
        ("BACKENDAI_GATEWAY_PORT", "70000"),
        ("BACKENDAI_SYNC_INTERVAL", "-1"),
        ("BACKENDAI_SYNC_INTERVAL", "nan"),
    ],
)
def test_it_refuses_what_makes_no_sense(variable: str, value: str) -> None:
    with pytest.raises(UserError):
        read_settings({variable: value}, {})


def test_it_reads_back_its_credentials_and_takes_a_broken_file_for_none(tmp_path: Path) -> None:
    credentials = Credentials("http://p", "n1", "t", "d", "key")
    assert load_credentials(tmp_path) is None
    save_credentials(tmp_path, credentials)
    assert load_credentials(tmp_path) == credentials
    kept = json.loads((tmp_path / "credentials.json").read_text())
    (tmp_path / "credentials.json").write_text(json.dumps(kept | {"broker_url": "", "later": 1}))
    assert load_credentials(tmp_path) == credentials, "keys of other versions are ignored"
    (tmp_path / "credentials.json").write_text("{")
    assert load_credentials(tmp_path) is None


def test_it_comes_back_at_the_same_port_or_takes_another_when_that_is_taken(tmp_path: Path) -> None:
    settings = read_settings({"BACKENDAI_AGENT_DATA": str(tmp_path)}, {})
    first = listen(settings, "http://127.0.0.1:1")
    url = public_url(settings, first, "http://127.0.0.1:1")
    assert url.startswith("http://127.0.0.1:")
    other = listen(settings, "http://127.0.0.1:1")
    assert other.getsockname()[1] != first.getsockname()[1]
    kept = other.getsockname()[1]
    first.close()
    other.close()
    again = listen(settings, "http://127.0.0.1:1")
    assert again.getsockname()[1] == kept
    again.close()


def test_it_names_the_setting_when_its_gateway_cannot_listen(tmp_path: Path) -> None:
    environ = {"BACKENDAI_AGENT_DATA": str(tmp_path), "BACKENDAI_GATEWAY_HOST": "192.0.2.77"}  # no machine has it
    with pytest.raises(UserError, match=r"192\.0\.2\.77.*BACKENDAI_GATEWAY_HOST"):
        listen(read_settings(environ, {}), "http://127.0.0.1:1")


def test_it_says_the_address_that_it_was_told_to_say(tmp_path: Path) -> None:
    environ = {"BACKENDAI_AGENT_DATA": str(tmp_path), "BACKENDAI_GATEWAY_URL": "https://node.example/gw/"}
    settings = read_settings(environ, {})
    listener = listen(settings, "http://127.0.0.1:1")
    assert public_url(settings, listener, "http://127.0.0.1:1") == "https://node.example/gw"
    listener.close()


@pytest.mark.parametrize("address", ["portal:8080", "portal.example.org", "ftp://portal", "http://", "http:// portal"])
def test_an_address_of_a_portal_that_is_none_is_refused_instead_of_tried_for_ever(address: str) -> None:
    with pytest.raises(UserError, match="http://host:port") as refusal:
        read_settings({}, {"join": address})
    assert address.rstrip("/") in str(refusal.value)
