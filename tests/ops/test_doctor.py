"""The doctor's findings, with fakes for what cannot be changed here."""

from __future__ import annotations

import asyncio
import json
import socket
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.core.management import call_command

from backendai.agent.accelerators.base import Device, Found
from backendai.agent.accelerators.inventory import Mock
from backendai.gates.gateways.site_keys import host_key, private_text
from backendai.ops.doctor import accelerators, engine, machine, portal, ssh
from backendai.ops.doctor.check import Check
from backendai.ops.run.engine import NoEngine

GOOD_ENGINE: dict[str, Any] = {
    "LiveRestoreEnabled": True,
    "Driver": "overlay2",
    "CgroupVersion": "2",
    "CgroupDriver": "systemd",
    "MemoryLimit": True,
    "CpuCfsQuota": True,
    "PidsLimit": True,
    "DefaultAddressPools": [{"Base": "10.64.0.0/12", "Size": 26}],
    "SecurityOptions": ["name=seccomp,profile=default"],
    "BridgeNfIptables": True,
}


def ask_good(path: str) -> dict[str, Any]:
    return GOOD_ENGINE if path == "/info" else {"Version": "27.1", "ApiVersion": "1.46", "KernelVersion": "6.1.0-18"}


def test_it_finds_nothing_wrong_with_a_well_made_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "obstacle", lambda: "")
    assert {check.name: check.level for check in engine.docker(ask_good)} == {
        "docker": "ok",
        "cluster networks": "ok",
        "live-restore": "ok",
        "storage driver": "ok",
        "cgroups": "ok",
        "networks": "ok",
        "seccomp": "ok",
        "bridges": "ok",
    }


@pytest.mark.parametrize(
    ("change", "name", "level"),
    [
        ({"LiveRestoreEnabled": False}, "live-restore", "warning"),
        ({"Driver": "vfs"}, "storage driver", "warning"),
        ({"PidsLimit": False}, "cgroups", "problem"),
        ({"SecurityOptions": []}, "seccomp", "warning"),
        ({"BridgeNfIptables": False}, "bridges", "warning"),
    ],
)
def test_it_says_what_an_engine_lacks_and_how_to_mend_it(change: dict[str, Any], name: str, level: str) -> None:
    def ask(path: str) -> dict[str, Any]:
        return {**ask_good(path), **change} if path == "/info" else ask_good(path)

    found = {check.name: check for check in engine.docker(ask) if check.level != "ok"}
    assert set(found) == {name}
    assert found[name].level == level
    assert found[name].fix


@pytest.mark.parametrize(("text", "level"), [("0\n", "warning"), ("1\n", "ok"), ("", "ok")])
def test_it_looks_at_bridges_itself_where_the_engine_does_not_tell(text: str, level: str, tmp_path: Path) -> None:
    setting = tmp_path / "bridge-nf-call-iptables"
    if text:
        setting.write_text(text)
    assert engine.bridges({}, setting).level == level


def test_the_engines_own_address_pools_are_no_limit() -> None:
    def ask(path: str) -> dict[str, Any]:
        return {**ask_good(path), "DefaultAddressPools": None} if path == "/info" else ask_good(path)

    assert [check.name for check in engine.docker(ask) if check.level != "ok"] == []


@pytest.mark.parametrize(
    ("pool", "level", "said"),
    [
        (None, "ok", "10.89.0.0/16 has addresses for 1024 networks"),
        ("10.0.0.0/24", "warning", "addresses for 4 networks"),
        ("10.0.0.1/8", "problem", "is not a valid network"),
    ],
)
def test_it_counts_the_networks_that_the_platforms_pool_gives(pool: str | None, level: str, said: str) -> None:
    found = engine.networks(pool)
    assert (found.level, bool(found.fix)) == (level, level != "ok")
    assert said in found.message


def test_it_refuses_an_engine_that_is_too_old() -> None:
    assert engine.engine_version({"Version": "19.03", "ApiVersion": "1.40"}).level == "problem"


def test_it_warns_of_weaker_isolation_when_no_engine_answers() -> None:
    def refuse(path: str) -> Any:
        raise NoEngine("nothing answers at unix:///nowhere")

    (check,) = engine.docker(refuse)
    assert check.level == "warning"
    assert "weaker isolation" in check.message
    assert "apt install docker.io" in check.fix


@pytest.mark.parametrize(("count", "level"), [("128\n", "warning"), ("1023\n", "warning"), ("1024\n", "ok")])
def test_it_warns_of_few_inotify_instances(count: str, level: str, tmp_path: Path) -> None:
    setting = tmp_path / "max_user_instances"
    setting.write_text(count)
    found = machine.inotify(setting)
    assert (found.level, "fs.inotify.max_user_instances" in found.fix) == (level, level == "warning")


def test_it_refuses_an_old_python() -> None:
    assert machine.python_version((3, 10, 4)).level == "problem"
    assert machine.python_version((3, 13, 0)).level == "ok"


def test_it_finds_a_data_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert machine.data_folder(tmp_path / "file" / "var").level == "problem"
    assert machine.data_folder(tmp_path / "var").level == "ok"


@pytest.mark.parametrize(("free", "level"), [(2**29, "problem"), (5 * 2**30, "warning"), (50 * 2**30, "ok")])
def test_it_looks_at_the_free_disk(tmp_path: Path, free: int, level: str) -> None:
    assert machine.free_disk(tmp_path, free).level == level


def test_it_measures_the_disk_of_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    assert str(tmp_path) in machine.free_disk(tmp_path / "not" / "yet").message


def test_it_says_what_an_ordinary_user_cannot_do() -> None:
    assert machine.privileges(1000).level == "warning"
    assert machine.privileges(0).level == "ok"


def test_it_names_the_package_of_a_missing_program() -> None:
    checks = {check.name: check for check in machine.programs(lambda name: None)}
    assert checks["mkfs.ext4"].fix == "apt install e2fsprogs"
    assert all(check.level == "warning" for check in checks.values())


def test_it_tries_the_sandbox_instead_of_believing_in_it() -> None:
    assert machine.bubblewrap(("sh", "-c", "echo no namespaces >&2; exit 1")).level == "warning"
    assert "no namespaces" in machine.bubblewrap(("sh", "-c", "echo no namespaces >&2; exit 1")).message
    assert machine.bubblewrap(("sh", "-c", "true")).level == "ok"
    assert machine.bubblewrap(("no-such-program-anywhere",)).fix == "apt install bubblewrap"


def test_it_tells_a_used_port_from_a_free_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        number = server.getsockname()[1]
        assert "something listens" in machine.port("127.0.0.1", number).message
    assert "is free" in machine.port("127.0.0.1", number).message
    assert machine.port("192.0.2.1", number).level == "problem"


def test_it_notices_a_clock_that_is_wrong_or_left_alone() -> None:
    assert machine.clock(state=0, now=0.0).level == "problem"
    assert machine.clock(state=5).level == "warning"
    assert machine.clock(state=0).level == "ok"


def test_it_asks_the_broker_and_hides_its_password() -> None:
    check = portal.broker("redis://:secret@127.0.0.1:1/0")
    assert check.level == "warning"
    assert "secret" not in check.message


def test_it_says_how_long_ago_the_scheduler_looked() -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    assert portal.scheduler(None, now).level == "warning"
    assert portal.scheduler(now - timedelta(minutes=5), now).message == "looked last 300 s ago"
    assert portal.scheduler(now - timedelta(seconds=3), now).level == "ok"


@pytest.mark.django_db
def test_it_sees_that_no_image_can_start() -> None:
    assert portal.images().level == "warning"


@pytest.mark.django_db
def test_it_finds_the_database_in_order() -> None:
    assert [check.level for check in portal.database()][-1] == "ok"


@pytest.mark.django_db
def test_it_prints_findings_as_json_and_fails_when_something_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Check("disk", "problem", "0.1 GiB are free", "Free some disk space.")
    monkeypatch.setattr("backendai.ops.management.commands.doctor.examine", lambda: [broken])
    out = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("doctor", "--json", stdout=out)
    assert ended.value.code == 1
    assert json.loads(out.getvalue()) == [
        {"name": "disk", "level": "problem", "message": "0.1 GiB are free", "fix": "Free some disk space."}
    ]


@pytest.mark.django_db
def test_it_examines_this_machine_without_falling_over() -> None:
    out = StringIO()
    try:
        call_command("doctor", stdout=out)
    except SystemExit as ended:
        assert ended.code == 1
    assert "python: Python 3" in out.getvalue()
    assert "problems" in out.getvalue()


class Gpus(Mock):
    """GPUs of which one fails."""

    def discover(self) -> Found:
        devices = [Device(f"GPU-{number}", "cuda.device", "H200", fault="lost" * (number == 2)) for number in range(3)]
        return Found(tuple(devices), is_present=True)


def test_it_looks_at_gpus_and_at_the_engines_way_to_give_them() -> None:
    assert [(check.level, check.message) for check in accelerators.accelerators([], ask_good)] == [
        ("ok", "there are none")
    ]
    found = accelerators.accelerators([Gpus({})], ask_good)
    assert [check.level for check in found] == ["problem", "ok", "warning"]
    assert ("GPU-2" in found[0].message, found[1].message) == (True, "2 × H200")
    with_runtime = accelerators.accelerators([Gpus({})], lambda path: GOOD_ENGINE | {"Runtimes": {"nvidia": {}}})
    assert [check.level for check in with_runtime] == ["problem", "ok", "ok"]
    on_paper = accelerators.accelerators([Mock({"cuda.device": 1000})], ask_good)
    assert on_paper[0].level == "problem" and "paper" in on_paper[0].message


@pytest.mark.parametrize(("is_ours", "level"), [(True, "ok"), (False, "problem")])
def test_it_looks_at_the_key_that_the_ssh_gate_shows(is_ours: bool, level: str) -> None:
    assert asyncio.run(_gate_check(is_ours)).level == level


async def _gate_check(is_ours: bool) -> Check:
    text = private_text(host_key() if is_ours else Ed25519PrivateKey.generate())
    async with asyncssh.listen("127.0.0.1", 0, server_host_keys=[asyncssh.import_private_key(text)]) as server:
        return await asyncio.to_thread(ssh.gate, "0.0.0.0", server.get_port())


def test_it_sees_a_gate_whose_balancer_takes_the_proxy_protocol_from_others(settings: Any) -> None:
    settings.SSH_PROXIES = ["10.0.0.5"]
    assert asyncio.run(_gate_check(is_ours=True)).level == "ok"
    assert asyncio.run(_gate_check(is_ours=False)).level == "problem"


def test_it_says_that_no_ssh_gate_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
    found = ssh.gate("127.0.0.1", port)
    assert found.level == "warning" and str(port) in found.message


@pytest.mark.parametrize(("is_here", "level"), [(True, "warning"), (False, "ok")])
def test_a_gate_elsewhere_may_answer_its_proxies_alone(
    settings: Any, monkeypatch: pytest.MonkeyPatch, is_here: bool, level: str
) -> None:
    settings.SSH_PROXIES = ["10.0.0.5"]
    monkeypatch.setattr(ssh, "is_loopback", lambda host: is_here)

    async def found() -> Check:
        async with await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0) as server:
            return await asyncio.to_thread(ssh.gate, "127.0.0.1", server.sockets[0].getsockname()[1])

    assert asyncio.run(found()).level == level


def test_it_says_why_an_agent_cannot_join_networks_over_several() -> None:
    found = engine.cluster_networks("iproute2 is not installed")
    assert found.level == "warning" and "iproute2 is not installed" in found.message
