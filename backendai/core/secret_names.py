"""Environment variables that look like secrets: their values are kept out of addresses and histories."""

from __future__ import annotations

import re

# Better one too many: what is taken for a secret is only typed again.
# Written so that a page's script understands them too.
NAME_PATTERN = (
    "passw|passphrase|pwd|secret|token|key|credential|auth(?!or(?!i))|private|cookie|signature"
    "|(?:^|_)(?:pass|pat|dsn)(?:_|$)"
)
VALUE_PATTERN = r"://[^/\s:@]*:[^/\s@]+@"
_NAME = re.compile(NAME_PATTERN, re.IGNORECASE)
_ADDRESS_WITH_PASSWORD = re.compile(VALUE_PATTERN)


def looks_secret(name: str, value: str = "") -> bool:
    """Return whether a variable of this name, or with this value, is likely to hold a secret."""
    return bool(_NAME.search(name) or _ADDRESS_WITH_PASSWORD.search(value))
