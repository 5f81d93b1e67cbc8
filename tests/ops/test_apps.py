"""Settings of the app proxy, its port, and what the doctor says about the way to apps."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from backendai.ops.checks import check_apps
from backendai.ops.doctor import apps
from backendai.ops.run import fleet, ports, up
from backendai.ops.run.fleet import Choice


@pytest.mark.parametrize(
    ("changes", "ids"),
    [
        ({}, []),
        (
            {"APPS_DOMAIN": "apps.example.org", "CSRF_TRUSTED_ORIGINS": ["https://portal.example.org"], "SECURE": True},
            [],
        ),
        ({"APPS_DOMAIN": "apps.example.org", "ALLOWED_HOSTS": ["portal.example.org"]}, ["portal.W012", "portal.W013"]),
        ({"APPS_DOMAIN": "apps.example.org", "ALLOWED_HOSTS": ["portal.example.net"]}, ["portal.W012"]),
        ({"APPS_DOMAIN": "apps.ours.ac.kr", "ALLOWED_HOSTS": ["portal.theirs.ac.kr"]}, ["portal.W012"]),
        ({"APPS_DOMAIN": "apps.lab.ac.kr", "ALLOWED_HOSTS": ["portal.lab.ac.kr"]}, ["portal.W012", "portal.W013"]),
        ({"APPS_DOMAIN": "10.0.0.1"}, ["portal.E011"]),
        ({"APPS_DOMAIN": "apps"}, ["portal.E011"]),
        ({"APPS_DOMAIN": "apps.example.org:81"}, ["portal.E011"]),
        ({"APPS_DOMAIN": f"{'a.' * 100}org"}, ["portal.E011"]),
        ({"APPS_DOMAIN": "example.org", "ALLOWED_HOSTS": ["portal.example.org"]}, ["portal.E012"]),
        ({"APPS_DOMAIN": "example.org", "PORTAL_URL": "http://example.org:8080"}, ["portal.E012"]),
        ({"APPS_DOMAIN": "apps.portal.example.org", "ALLOWED_HOSTS": ["portal.example.org"]}, ["portal.W011"]),
        ({"APPS_PORT": 0}, ["portal.E013"]),
        ({"APPS_PUBLIC_PORT": 70000}, ["portal.E013"]),
        ({"APPS_PORT": 8080, "PORT": 8080}, ["portal.E013"]),
    ],
)
def test_it_refuses_settings_by_which_apps_would_share_something_with_the_portal(
    settings: Any, changes: dict[str, Any], ids: list[str]
) -> None:
    for name, value in changes.items():
        setattr(settings, name, value)
    found = check_apps()
    assert [one.id for one in found] == ids
    assert all(one.hint for one in found)


def test_the_doctor_knows_whether_names_of_apps_are_found() -> None:
    def found(name: str, port: int) -> list[object]:
        return [name]

    def lost(name: str, port: int) -> Any:
        raise socket.gaierror("unknown")

    assert apps.app_names("apps.localhost", "127.0.0.1", lost).level == "ok"
    assert "BACKENDAI_APPS_DOMAIN" in apps.app_names("apps.localhost", "0.0.0.0", found).fix
    assert apps.app_names("apps.example.org", "0.0.0.0", found).level == "ok"
    assert "wildcard" in apps.app_names("apps.example.org", "0.0.0.0", lost).fix


@pytest.mark.asyncio
@pytest.mark.parametrize(("told", "host"), [("0.0.0.0", "127.0.0.1"), ("127.0.0.2", "127.0.0.2")])
async def test_the_doctor_knows_whether_the_app_proxy_answers(settings: Any, told: str, host: str) -> None:
    settings.APPS_HOST = told

    async def healthy(_: web.BaseRequest) -> web.Response:
        return web.Response(text="ok")

    server = TestServer(web.Application(), host=host)
    server.app.router.add_get("/healthz", healthy)  # type: ignore[arg-type]
    await server.start_server()
    assert (await asyncio.to_thread(apps.app_proxy, server.port)).level == "ok"
    await server.close()
    assert (await asyncio.to_thread(apps.app_proxy, server.port)).level == "warning"


def test_apps_get_the_port_after_the_portals_or_a_free_one(tmp_path: Path) -> None:
    with closing(ports.PortClaims()) as claims:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            assert ports.apps_port(claims, "127.0.0.1", port - 1) not in (0, port)
        assert ports.apps_port(claims, "127.0.0.1", 65535) > 0
        assert ports.apps_port(claims, "127.0.0.1", port - 1) == port
    told = fleet.environment(Choice("127.0.0.1", 18000, tmp_path, 1, "docker"), "unix:///x")
    assert told["BACKENDAI_APPS_PORT"] == "18001"
    named = Choice("127.0.0.1", 18000, tmp_path, 1, "docker", apps_port=18500)
    assert fleet.environment(named, "unix:///x")["BACKENDAI_APPS_PORT"] == "18500"
    assert "http://*.apps.localhost:18500" in up.welcome(named, None)


def test_it_refuses_a_port_for_apps_that_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        apps_port = str(taken.getsockname()[1])
        words = ["--port", port, "--apps-port", apps_port, "--data", str(tmp_path), "--no-agent"]
        assert up.main(words) == 1
    assert f"Port {apps_port} on 127.0.0.1 cannot be used" in capsys.readouterr().err
    assert up.main(["--port", port, "--apps-port", port, "--data", str(tmp_path), "--no-agent"]) == 1
