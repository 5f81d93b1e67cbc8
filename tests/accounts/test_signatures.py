"""Requests signed with a key pair: the official client's own vectors, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from backendai.domain.accounts.models import KeyPair, SeenSignature
from backendai.domain.accounts.secret_box import seal, unseal
from backendai.domain.accounts.services.key_pairs import create_key_pair, rotate_secret
from backendai.domain.accounts.sign_in.signatures import SignatureRefused, Signed, moment_of, sign, signer_of
from tests.cast import Cast

SECRET = "secretsecretsecretsecretsecretsecretsecr"
VECTORS = [
    (
        "GET", "/", "text/plain", "03.140099", "20",
        "e494dd971a3a19cd58f172a60b2bf19e46eb34bf0d2d03f70bece2125dddfa2e",
    ),
    (
        "POST", "/session", "application/json", "03.930889", "20",
        "d1ef957e3a43785fda321e39a9b502dbce179d2c4d37f19677cabaf30fe9cd2b",
    ),
    (
        "GET", "/stream/session/16a5401f-a287-48b4-b41d-8534a8c4b79a/execute", "", "03.932647", "20",
        "c35e4d449c2383734133d2175969a53fd70c627a58664c31a6a082c030fb08cc",
    ),
    (
        "POST", "/session/mysess/rename?name=mysess2", "text/plain", "23.303340", "21",
        "24db88b9bf8f6b48f439f2fd682b4e5eca54bde3dd82638efdd4b35ebd9f5a93",
    ),
    (
        "POST", "/session/mysess/upload", "multipart/form-data; boundary=x", "16.454594", "21",
        "91b5c208cca3de477c3dd6f010a258e8d8baa666db9ce73d99c65d3d5c4c5811",
    ),
    (
        "PATCH", "/session/mysess2", "text/plain", "25.313016", "21",
        "951a2d683c9b4edd2a47b4b3a1f6e7957e53e01b9e24887fbf149aa773c4fdb7",
    ),
]  # fmt: skip
NOW = datetime(2026, 11, 20, 10, 20, tzinfo=UTC)
REQUEST = Signed("POST", "/api/v1/sessions/?a=b", "portal.example:8080", NOW.isoformat(), "application/json", "", b"{}")


def header(pair: KeyPair, secret: str, request: Signed) -> str:
    return f"signMethod=HMAC-SHA256, credential={pair.access_key}:{sign(secret, request)}"


@pytest.mark.parametrize(("method", "path", "kind", "seconds", "minute", "expected"), VECTORS)
def test_it_signs_as_the_official_client_does(
    method: str, path: str, kind: str, seconds: str, minute: str, expected: str
) -> None:
    date = f"2026-11-20T10:{minute}:{seconds}+00:00"
    assert sign(SECRET, Signed(method, path, "127.0.0.1:18080", date, kind, "v7.20230615")) == expected


def test_it_reads_the_dates_that_clients_send() -> None:
    for text in ("2026-11-20T10:20:00+00:00", "2026-11-20T12:20:00+02:00", "2026-11-20T10:20:00Z", "20261120T102000Z"):
        assert moment_of(text) == NOW, text
    assert moment_of("Fri, 20 Nov 2026 10:20:00 GMT") == NOW
    for text in ("", "now", "9999", "Fri", "2026-13-01T00:00:00", "0001-01-01T00:00:00+14:00"):
        with pytest.raises(SignatureRefused) as refused:
            moment_of(text)
        assert refused.value.code == "invalid-date", text


@pytest.mark.django_db
def test_it_takes_a_good_signature_once(cast: Cast) -> None:
    pair, secret = create_key_pair(cast.alice, "laptop")
    good = header(pair, secret, REQUEST)
    found = signer_of(REQUEST, good, now=NOW)
    assert (found.pk, found.user) == (pair.pk, cast.alice)
    pair.refresh_from_db()
    assert pair.last_used_at == NOW
    for later in (timedelta(), timedelta(minutes=4)):
        with pytest.raises(SignatureRefused) as refused:
            signer_of(REQUEST, good, now=NOW + later)
        assert refused.value.code == "signature-used"
    again = replace(REQUEST, date=(NOW + timedelta(minutes=30)).isoformat())
    assert signer_of(again, header(pair, secret, again), now=NOW + timedelta(minutes=30)).pk == pair.pk
    assert SeenSignature.objects.count() == 1, "what is too old by itself need not be remembered"


@pytest.mark.django_db
@pytest.mark.parametrize(
    "change",
    [
        {"method": "DELETE"},
        {"path": "/api/v1/sessions/?a=c"},
        {"host": "other.example"},
        {"body": b'{"a": 1}'},
        {"content_type": "text/plain"},
        {"version": "v7.20230615"},
        {"date": (NOW + timedelta(seconds=1)).isoformat()},
    ],
    ids=lambda change: next(iter(change)),
)
def test_it_refuses_a_request_of_which_anything_was_changed(cast: Cast, change: dict[str, Any]) -> None:
    pair, secret = create_key_pair(cast.alice, "laptop")
    with pytest.raises(SignatureRefused) as refused:
        signer_of(replace(REQUEST, **change), header(pair, secret, REQUEST), now=NOW)
    assert refused.value.code == "invalid-signature"
    assert not SeenSignature.objects.exists(), "strangers cannot fill the table"


@pytest.mark.django_db
def test_it_refuses_whoever_does_not_hold_the_secret_of_an_active_pair(cast: Cast, settings: Any) -> None:
    pair, secret = create_key_pair(cast.alice, "laptop")
    bobs, _ = create_key_pair(cast.bob, "his")
    bare = KeyPair.objects.create(user=cast.alice)
    said = []

    def refusal(text: str) -> str:
        with pytest.raises(SignatureRefused) as refused:
            signer_of(REQUEST, text, now=NOW)
        said.append(refused.value.message)
        return refused.value.code

    good = header(pair, secret, REQUEST)
    bad = [header(bobs, secret, REQUEST), header(bare, "", REQUEST), good.replace(pair.access_key, "AKNOBODY")]
    assert {refusal(text) for text in bad} == {"invalid-signature"}
    assert len(set(said)) == 1, "nobody learns which access keys there are"
    for text in ("", pair.access_key, f"credential={pair.access_key}", good.upper(), good + "00", good[:-1]):
        assert refusal(text) == "invalid-signature"
    _, newer = rotate_secret(cast.alice, pair.access_key)
    assert refusal(good) == "invalid-signature"
    for change in ({"is_active": False}, {"user__is_active": False}):
        field, value = next(iter(change.items()))
        target = pair.user if field.startswith("user") else KeyPair.objects.get(pk=pair.pk)
        setattr(target, field.removeprefix("user__"), value)
        target.save()
        assert refusal(header(pair, newer, REQUEST)) == "invalid-signature"
        setattr(target, field.removeprefix("user__"), True)
        target.save()
    assert signer_of(REQUEST, header(pair, newer, REQUEST), now=NOW).pk == pair.pk


@pytest.mark.django_db
@pytest.mark.parametrize("apart", [timedelta(minutes=6), timedelta(minutes=-6)])
def test_it_refuses_what_is_too_old_or_too_new_and_says_by_how_much(cast: Cast, apart: timedelta) -> None:
    pair, secret = create_key_pair(cast.alice, "laptop")
    with pytest.raises(SignatureRefused, match="360 s") as refused:
        signer_of(REQUEST, header(pair, secret, REQUEST), now=NOW + apart)
    assert refused.value.code == "signature-expired"
    wider = signer_of(REQUEST, header(pair, secret, REQUEST), now=NOW + apart, window=timedelta(minutes=15))
    assert wider.pk == pair.pk, "a door for older clients may allow more"


@pytest.mark.django_db
def test_it_keeps_secrets_encrypted_and_reads_those_that_an_earlier_key_sealed(cast: Cast, settings: Any) -> None:
    pair, secret = create_key_pair(cast.alice, "laptop")
    assert secret not in pair.secret
    old = settings.SECRET_KEY
    settings.SECRET_KEY = "another-secret-key-that-is-long-enough-to-use"
    assert unseal(pair.secret) == ""
    settings.SECRET_KEY_FALLBACKS = [old]
    assert unseal(pair.secret) == secret
    assert unseal(seal("new")) == "new"
    assert unseal("") == ""
