"""Recognises environment variables that look like secrets. Their values are kept out of addresses and histories."""

from __future__ import annotations

import re

# The patterns match too much on purpose: a value wrongly taken for a secret only has to be typed again.
# Both patterns are also valid in JavaScript, for scripts of pages.
NAME_PATTERN = (
    "passw|passphrase|pwd|secret|token|key|credential|auth(?!or(?!i))|private|cookie|signature"
    "|(?:^|_)(?:pass|pat|dsn)(?:_|$)"
)
VALUE_PATTERN = r"://[^/\s:@]*:[^/\s@]+@"
_NAME = re.compile(NAME_PATTERN, re.IGNORECASE)
_ADDRESS_WITH_PASSWORD = re.compile(VALUE_PATTERN)


def looks_secret(name: str, value: str = "") -> bool:
    """Return whether a variable likely holds a secret, by its name or its value."""
    return bool(_NAME.search(name) or _ADDRESS_WITH_PASSWORD.search(value))
