"""The certificate authorities that a kernel's programs trust: the system's and the site's.

A folder beside the kernel's home contains two read-only files: ``all.pem``, as most variables replace a program's list,
and ``site.pem`` for programs that extend theirs.
"""

from __future__ import annotations

import ssl
from pathlib import Path

import requests.certs

from backendai.base.wire.messages import KernelSpec

INSIDE = "/etc/backendai/ca"
_ALL, _SITE = "all.pem", "site.pem"
_REPLACING = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT", "AWS_CA_BUNDLE")
_ADDING = ("NODE_EXTRA_CA_CERTS",)
_OF_THE_SYSTEM = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def write_authorities(folder: Path, spec: KernelSpec) -> None:
    """Write the two files into the folder, readable by everybody; creates it if needed. Raises OSError."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    for name, text in ((_ALL, f"{_system()}\n{spec.authorities}"), (_SITE, spec.authorities)):
        new = folder / f".{name}.new"
        new.write_text(text)
        new.chmod(0o644)
        new.replace(folder / name)


def authority_environ(spec: KernelSpec, folder: str) -> dict[str, str]:
    """Return the variables that name the files in ``folder`` (a path in the kernel); none without authorities."""
    if not spec.authorities:
        return {}
    replacing = dict.fromkeys(_REPLACING, f"{folder}/{_ALL}")
    return replacing | dict.fromkeys(_ADDING, f"{folder}/{_SITE}")


def _system() -> str:
    """Return the system's list of authorities, else the list that came with Python."""
    named = ssl.get_default_verify_paths().cafile
    for path in (named, *_OF_THE_SYSTEM, requests.certs.where()):
        if path and Path(path).is_file() and (text := Path(path).read_text(errors="replace")).strip():
            return text
    return ""
