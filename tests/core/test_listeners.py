"""Addresses at which a machine reaches its own servers."""

from __future__ import annotations

import pytest

from backendai.base.process.listeners import in_url, is_loopback, reached_at


@pytest.mark.parametrize(
    ("host", "url"),
    [("", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("fd00::1", "[fd00::1]"), ("web", "web")],
)
def test_a_server_on_any_address_is_reached_by_loopback(host: str, url: str) -> None:
    assert in_url(reached_at(host)) == url


def test_loopback_is_this_machine_alone() -> None:
    assert [is_loopback(host) for host in ("127.8.0.1", "::1", "localhost")] == [True] * 3
    assert [is_loopback(host) for host in ("", "0.0.0.0", "10.0.0.5", "web")] == [False] * 4
