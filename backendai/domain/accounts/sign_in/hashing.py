"""Hashes passwords in little memory: strangers cause a hash with each attempt to sign in."""

from __future__ import annotations

import threading

from django.contrib.auth.hashers import Argon2PasswordHasher

# Django's 100 MiB for each of 32 threads were 3 GB. OWASP names 19 MiB in two passes as enough.
_MOST_AT_ONCE = 2
_turns = threading.BoundedSemaphore(_MOST_AT_ONCE)


class SmallArgon2(Argon2PasswordHasher):
    """Argon2id with 19 MiB for each hash, two hashes at once; further ones wait. Reads hashes of other costs."""

    memory_cost, time_cost, parallelism = 19 * 1024, 2, 1

    def encode(self, password: str, salt: str) -> str:
        """Return the hash."""
        with _turns:
            encoded: str = super().encode(password, salt)
        return encoded

    def verify(self, password: str, encoded: str) -> bool:
        """Return whether the hash is of this password."""
        with _turns:
            is_right: bool = super().verify(password, encoded)
        return is_right
