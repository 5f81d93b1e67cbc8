"""Hashes of passwords take little memory, also when many people sign in at once."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

from django.contrib.auth.hashers import Argon2PasswordHasher

from backendai.domain.accounts.sign_in.hashing import SmallArgon2
from backendai.settings import portal


def test_a_hash_takes_at_most_20_mib() -> None:
    assert portal.PASSWORD_HASHERS[0].endswith(".SmallArgon2")
    encoded = SmallArgon2().encode("a long password", "somesalt")
    assert int(encoded.split("m=")[1].split(",")[0]) <= 20 * 1024
    assert SmallArgon2().verify("a long password", encoded) and not SmallArgon2().verify("another", encoded)


def test_a_hash_of_djangos_usual_cost_is_read_and_renewed() -> None:
    encoded = Argon2PasswordHasher().encode("a long password", "somesalt")
    assert SmallArgon2().verify("a long password", encoded) and SmallArgon2().must_update(encoded)


def test_two_hashes_are_made_at_once() -> None:
    lock, now, most = threading.Lock(), 0, 0

    def hashing(*_: object) -> str:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.05)
        with lock:
            now -= 1
        return "hash"

    with mock.patch.object(Argon2PasswordHasher, "encode", hashing), ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda _: SmallArgon2().encode("a", "b"), range(8))) == ["hash"] * 8
    assert most == 2
