"""Files of containers of a busybox alone, by the kit's server and by ours in Python, and ports of their neighbours."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import pytest

from backendai.agent.backends.docker.backend import DockerBackend
from backendai.agent.backends.shared import kit
from backendai.domain.compute.models import ComputeSession
from tests.agent.conftest import backend, deployment, engine, new_spec  # noqa: F401
from tests.agent.contract_tools import NewSpec
from tests.cast import Cast
from tests.factories import make_running_session
from tests.sshgate.stage import Stage, connect, stage

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.docker, pytest.mark.long]
# What a link may lead to, and each of it in a way that a server of the host's would follow out of the container.
_LINKS = {
    "absolute": "/etc/hostname",
    "upwards": "../../../../../../../../etc/hostname",
    "root": "/proc/self/root/etc/hostname",
    "first": "/proc/1/root/etc/hostname",
    "secret": "/etc/shadow",
    "memory": "/proc/1/mem",
    "folder": "/proc/self/cwd/inside",
    "chain": "absolute",
    "loop": "loop",
}
_OWN_FILES = ("pipe:[", "socket:[", "anon_inode:", "/dev/null", "/proc/", "/home/work", "/run/backendai")


@pytest.fixture(params=["kit", "python"])
def here(request: pytest.FixtureRequest, backend: DockerBackend, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:  # noqa: F811
    if request.param == "python":
        monkeypatch.setattr(kit, "_FILE_SERVERS", ())
    with stage(backend) as found:
        yield found


@pytest.fixture
def session(cast: Cast, here: Stage, new_spec: NewSpec) -> ComputeSession:  # noqa: F811
    session = make_running_session(cast.alice, name="train", cluster_size=2)
    spec = new_spec()
    here.run_kernels(session, image=spec.image, deployment=spec.deployment, agent=spec.agent)
    return session


def test_files_are_copied_and_links_lead_where_their_owner_can_go(
    here: Stage, key: Path, session: ComputeSession
) -> None:
    local = here.folder / "local"
    local.write_bytes(os.urandom(2_000_000))
    for number, old in enumerate(([], ["-O"])):
        there, back = f"train@127.0.0.1:sent{number}", here.folder / f"back{number}"
        for source, target in ((str(local), there), (there, str(back))):
            copied = here.copy("scp", key, *old, source, target)
            assert copied.returncode == 0, copied.stderr
        assert back.read_bytes() == local.read_bytes()
    (here.folder / "of-the-host").write_text("everybody here may read this")
    links = _LINKS | {"host": str(here.folder / "of-the-host")}
    making = "; ".join(f"ln -s '{target}' {name}" for name, target in links.items())
    assert here.run(key, "train", f"echo inside >inside; {making}").returncode == 0
    followed = asyncio.run(_followed(here, key, links))
    assert followed["absolute"] == b"main1\n" and followed["host"] is None and followed["loop"] is None
    for name, content in followed.items():
        told = here.run(key, "train", f"head -c 1000000 {name}")
        assert content == (told.stdout if told.returncode == 0 else None), name


async def _followed(here: Stage, key: Path, links: dict[str, str]) -> dict[str, bytes | None]:
    """Return what a client of SFTP reads behind each link, or None; all that its server has open is its own."""
    found: dict[str, bytes | None] = {}
    async with connect(here, key) as connection, connection.start_sftp_client() as client:
        for name, target in links.items():
            assert await client.readlink(name) == target
            try:
                async with client.open(name, "rb") as file:
                    found[name] = bytes(await file.read(1_000_000))
            except asyncssh.SFTPError:
                found[name] = None
        for number in filter(str.isdigit, await client.listdir("/proc/self/fd")):
            with contextlib.suppress(asyncssh.SFTPNoSuchFile):  # the list itself, which is closed again
                assert str(await client.readlink(f"/proc/self/fd/{number}")).startswith(_OWN_FILES)
    return found


@pytest.mark.parametrize("here", ["kit"], indirect=True)
def test_a_port_on_the_loopback_of_another_kernel_is_reached_by_its_name(
    here: Stage, key: Path, session: ComputeSession
) -> None:
    for name in ("main1", "sub1"):
        serve = f"echo page of {name} >index.html; httpd -p 127.0.0.1:8080 -h ."
        assert here.run(key, f"train+{name}", serve).returncode == 0
    for name, host in (("train", "sub1"), ("train+sub1", "main1"), ("train+sub1", "localhost")):
        told = here.run(key, name, "-W", f"{host}:8080", given=b"GET / HTTP/1.0\r\n\r\n").stdout
        owner = "sub1" if host == "localhost" else host
        assert f"page of {owner}".encode() in told, (name, host, told)
    assert b"Nothing is listening" in here.run(key, "train", "-W", "sub1:8081", LogLevel="INFO").stderr
