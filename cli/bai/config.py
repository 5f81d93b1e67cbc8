"""Profiles, and the tokens of each in a file of its own that only its owner can read."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_DEFAULT = "default"
_KEYS = ("url", "project", "resource_group", "ca", "insecure")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HEAD = "# Written by `bai login`, which keeps your keys and not your comments.\n"


def config_folder() -> Path:
    """Return where profiles lie."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "bai"


def cache_folder() -> Path:
    """Return where keys of sessions and names for completion lie."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bai"


def write_private(path: Path, text: str | bytes) -> Path:
    """Replace a file at once; nobody else can read it at any time."""
    path = path.resolve()  # what a link leads to, as for files that people keep elsewhere
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())
    new.replace(path)
    return path


@dataclass(frozen=True)
class Profile:
    """A portal and one's usual values there. ``ca``: a file of certificates; ``insecure``: check none."""

    name: str = _DEFAULT
    url: str = ""
    project: str = ""
    resource_group: str = ""
    ca: str = ""
    insecure: bool = False
    token: str = ""

    @property
    def token_file(self) -> Path:
        """Where its token lies."""
        return config_folder() / "tokens" / self.name


def read_profiles() -> dict[str, dict[str, Any]]:
    """Return the keys of each profile."""
    try:
        document = tomllib.loads((config_folder() / "config.toml").read_text())
    except FileNotFoundError:
        return {}
    return {name: dict(keys) for name, keys in document.get("profiles", {}).items()}


def read_profile(name: str = "") -> Profile:
    """Return a profile with its token; BAI_URL and BAI_TOKEN come first. Raises ValueError for an unknown name."""
    name = name or os.environ.get("BAI_PROFILE", "")
    profiles = read_profiles()
    if name and name not in profiles:
        known = ", ".join(sorted(profiles)) or "none"
        raise ValueError(f"There is no profile {name}. Profiles: {known}. `bai login URL --profile {name}` makes it.")
    name = name or _DEFAULT
    url = os.environ.get("BAI_URL", "").rstrip("/") or profiles.get(name, {}).get("url", "")
    profile = Profile(**{**keys_for(name, url), "name": name, "url": url, "token": os.environ.get("BAI_TOKEN", "")})
    if not profile.token and url == profiles.get(name, {}).get("url") and profile.token_file.exists():
        profile = replace(profile, token=profile.token_file.read_text().strip())  # which no other portal gets
    return profile


def keys_for(name: str, url: str) -> dict[str, Any]:
    """Return the keys of a profile for a portal: none if they are those of another one."""
    keys = read_profiles().get(name, {})
    return {key: keys[key] for key in _KEYS if key in keys} if keys.get("url", url) == url else {}


def save_profile(profile: Profile) -> None:
    """Keep a profile and its token. Raises ValueError for a name that leads elsewhere."""
    if not _NAME.fullmatch(profile.name):
        raise ValueError(f"{profile.name!r} is no name of a profile: use letters, digits, dots and dashes.")
    write_private(profile.token_file, profile.token + "\n")
    profiles = read_profiles()
    other = {key: value for key, value in profiles.get(profile.name, {}).items() if key not in _KEYS}
    profiles[profile.name] = {**other, **{key: value for key in _KEYS if (value := getattr(profile, key))}}
    lines = [_HEAD]
    for name, keys in profiles.items():
        lines += [f"\n[profiles.{json.dumps(name)}]\n"]
        lines += [f"{key} = {json.dumps(value)}\n" for key, value in keys.items()]
    write_private(config_folder() / "config.toml", "".join(lines))


def remove_token(profile: Profile) -> None:
    """Delete the token of a profile, unless another one is used now; the profile stays."""
    if profile.token_file.exists() and profile.token_file.read_text().strip() == profile.token:
        profile.token_file.unlink()
