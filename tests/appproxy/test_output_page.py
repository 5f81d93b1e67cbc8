"""The page for printed pages: the same for everybody, with a policy that lets nothing in or out."""

from __future__ import annotations

import pytest

from tests.appproxy.stage import stage
from tests.appproxy.test_raw import send

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.asyncio]
_HOST = "output.apps.localhost"


async def test_it_is_constant_without_cookies_and_lets_nothing_be_loaded() -> None:
    async with stage() as here:
        answer = (await send(here, "portal=x", "GET / HTTP/1.1", host=_HOST)).decode()
        again = (await send(here, "", "GET /?x=1 HTTP/1.1\r\nOrigin: http://evil.example", host=_HOST)).decode()
        assert "200 OK" in answer and answer.partition("<!doctype")[2] == again.partition("<!doctype")[2] != ""
        assert "Set-Cookie" not in answer and "Access-Control" not in again
        [policy] = [line for line in answer.splitlines() if line.startswith("Content-Security-Policy: ")]
        rules = dict(rule.strip().partition(" ")[::2] for rule in policy.partition(": ")[2].split(";"))
        assert (rules["sandbox"], rules["default-src"], rules["connect-src"]) == ("allow-scripts", "'none'", "'none'")
        assert not any("http" in value or "*" in value or "'self'" in value for value in rules.values())
        for head in ("GET /x HTTP/1.1", "POST / HTTP/1.1"):
            assert b" 404 " in await send(here, "", head, host=_HOST)
