"""Signing in by a browser and by a token, and out, against a portal that answers as documented."""

from __future__ import annotations

import io
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from bai.__main__ import run
from bai.config import config_folder, read_profile
from tests.certificates import KEY, private_key
from tests.cli.stub import stub_portal

BEGUN = {
    "device_code": "device-1",
    "user_code": "WDJB-MJHT",
    "verification_uri": "https://portal.example.org/device/",
    "verification_uri_complete": "https://portal.example.org/device/?code=WDJB-MJHT",
    "expires_in": 600,
    "interval": 5,
}
GRANTED = {
    "access_token": "bai_new",
    "token_type": "Bearer",
    "scope": "read",
    "expires_at": None,
    "user": "a@example.com",
}
ME = {"email": "alice@example.com"}


@pytest.fixture(autouse=True)
def pauses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A computer without a profile; the seconds that it would have waited."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("BAI_URL", "BAI_TOKEN", "BAI_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    waited: list[float] = []
    monkeypatch.setattr("bai.commands.account.time.sleep", lambda seconds: waited.append(seconds) if seconds else None)
    return waited


def waits(error: str) -> tuple[int, dict[str, str]]:
    return 400, {"error": error}


def test_a_person_allows_it_in_a_browser(
    pauses: list[float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("bai.commands.account.click.launch", opened.append)
    answers = [(201, BEGUN), waits("authorization_pending"), waits("slow_down"), (200, GRANTED), (200, ME)]
    with stub_portal(*answers) as stub:
        assert run(["--profile", "lab", "login", stub.url, "--scope", "read", "--project", "vision"]) == 0
    begin, first, *_, last = stub.asked
    assert begin.path == "/api/v1/device/" and begin.body["scope"] == "read" and begin.body["client_name"]
    assert first.body == {"device_code": "device-1", "grant_type": "urn:ietf:params:oauth:grant-type:device_code"}
    assert "authorization" not in begin.headers and last.headers["authorization"] == "Bearer bai_new"
    assert pauses == [5, 5, 10] and opened == [BEGUN["verification_uri_complete"]]
    told = capsys.readouterr()
    assert "WDJB-MJHT" in told.err and "alice@example.com" in told.err and "bai_new" not in told.err + told.out
    profile = read_profile("lab")
    assert (profile.url, profile.token, profile.project) == (stub.url, "bai_new", "vision")


@pytest.mark.parametrize("error", ["access_denied", "expired_token", "invalid_grant"])
def test_what_was_refused_signs_nobody_in(error: str, capsys: pytest.CaptureFixture[str]) -> None:
    with stub_portal((201, BEGUN), waits(error)) as stub:
        assert run(["-v", "login", stub.url, "--no-browser"]) == 4
    assert error in capsys.readouterr().err and not (config_folder() / "config.toml").exists()


def test_a_token_is_read_from_standard_input_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("bai_mine\n"))
    with stub_portal((200, ME)) as stub:
        assert run(["login", stub.url, "--token", "bai_mine"]) == 2
        assert run(["login", stub.url, "--token", "-"]) == 0
    assert len(stub.asked) == 1 and read_profile().token == "bai_mine"


def test_a_token_that_the_portal_refuses_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("wrong\n"))
    with stub_portal((401, {"code": "not_authenticated", "detail": "No."})) as stub:
        assert run(["login", stub.url, "--token", "-"]) == 4
    assert read_profile().token == ""


@pytest.mark.parametrize(("status", "expected", "token"), [(204, 0, ""), (401, 0, ""), (403, 1, "bai_mine")])
def test_signing_out_revokes_the_token_and_deletes_it(
    status: int, expected: int, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("bai_mine\n"))
    with stub_portal((200, ME), (status, None if status == 204 else {"code": "x", "detail": "y"})) as stub:
        assert run(["login", stub.url, "--token", "-"]) == 0
        assert run(["logout"]) == expected
    assert (stub.asked[-1].method, stub.asked[-1].path) == ("DELETE", "/api/v1/me/token/")
    assert read_profile().token == token


def test_without_a_sign_in_it_says_how(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ps"]) == 4
    assert "`bai login URL`" in capsys.readouterr().err


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A file with a certificate of this machine that nobody trusts, and its key."""
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "portal")]), datetime.now(UTC)
    built = x509.CertificateBuilder(name, name, KEY.public_key(), 7, now - timedelta(days=1), now + timedelta(days=1))
    built = built.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
    path = tmp_path / "portal.pem"
    path.write_text(built.sign(KEY, hashes.SHA256()).public_bytes(Encoding.PEM).decode() + private_key())
    return path


def test_a_certificate_is_checked_unless_one_says_otherwise(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    with stub_portal((200, ME | {"results": []}), tls=tls) as stub:
        for options, expected in (([], 5), (["--ca", str(certificate)], 0), (["--insecure"], 0)):
            monkeypatch.setattr("sys.stdin", io.StringIO("bai_mine\n"))
            assert run(["login", stub.url, "--token", "-", *options]) == expected
            assert run(["ps"]) == expected or (expected == 5 and read_profile().token == "")


def test_another_portal_gets_none_of_the_keys_of_the_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    for options, project, insecure in (["--insecure", "--project", "vision"], "vision", True), ([], "", False):
        monkeypatch.setattr("sys.stdin", io.StringIO("bai_mine\n"))
        with stub_portal((200, ME)) as stub:
            assert run(["login", stub.url, "--token", "-", *options]) == 0
        profile = read_profile()
        assert (profile.url, profile.project, profile.insecure) == (stub.url, project, insecure)


def test_a_portal_that_is_asked_too_often_is_asked_later(pauses: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bai.sdk.client.time.sleep", lambda seconds: None)
    too_fast = (429, {"code": "rate-limited", "detail": "Wait.", "data": {}})
    with stub_portal((201, BEGUN), *[too_fast] * 5, (200, GRANTED), (200, ME)) as stub:
        assert run(["login", stub.url, "--no-browser"]) == 0
    assert [one.path for one in stub.asked if "authorization" in one.headers] == ["/api/v1/me/"]
