"""The settings of the mail server."""

from __future__ import annotations

from typing import Any

import pytest

from backendai.ops.checks import check_mail


@pytest.mark.parametrize(
    ("url", "sender", "ids"),
    [
        ("", "nobody", []),
        ("smtp+tls://user:word@mail.example.org:587", "portal@example.org", []),
        ("mail.example.org", "portal@example.org", ["portal.E031"]),
        ("http://mail.example.org", "nobody", ["portal.E031", "portal.E032"]),
    ],
)
def test_it_refuses_a_mail_server_that_cannot_be_reached(settings: Any, url: str, sender: str, ids: list[str]) -> None:
    settings.EMAIL_URL, settings.DEFAULT_FROM_EMAIL = url, sender
    found = check_mail()
    assert [one.id for one in found] == ids
    assert all(one.hint and "word" not in one.msg for one in found)
