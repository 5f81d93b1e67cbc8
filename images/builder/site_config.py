"""The machine's own package settings, for the build to use and to forget.

They reach a build as secrets, mounted while a step runs, so that no mirror, proxy or certificate lands in an image.
"""

from __future__ import annotations

import configparser
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

CA_FILES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
CA_IN_BUILD = "/run/secrets/ca"
SECRET_LIMIT = 500 * 1024  # BuildKit refuses larger secrets
DISTRIBUTION_KEYRING = re.compile(r"/(debian|ubuntu)-archive-keyring\.(gpg|pgp)$")
APT_SETTING = re.compile(r"Acquire::(Check-Valid-Until|Check-Date|Retries|https?::[\w:.-]+) ")
PIP_OPTIONS = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout")


@dataclass(frozen=True)
class Distribution:
    """The distribution that this machine runs, such as debian 12 bookworm."""

    id: str
    version: str
    suite: str


@dataclass(frozen=True)
class AptSource:
    """A package source of the distribution itself."""

    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...]
    signed_by: str = ""
    trusted: bool = False


def read_distribution(path: Path = Path("/etc/os-release")) -> Distribution:
    """Return the machine's distribution; fields are empty where the file does not say."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    fields = {key: value.strip("\"'") for key, _, value in (line.partition("=") for line in text.splitlines())}
    return Distribution(fields.get("ID", ""), fields.get("VERSION_ID", ""), fields.get("VERSION_CODENAME", ""))


def read_apt_sources(suite: str, folder: Path = Path("/etc/apt")) -> list[AptSource]:
    """Return the sources of the distribution's own ``suite``, without those of third parties and of local media."""
    found: list[AptSource] = []
    for path in (folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))):
        if path.suffix == ".list" and path.is_file():
            found += _parse_one_line_format(path.read_text(encoding="utf-8"))
        elif path.suffix == ".sources":
            found += _parse_stanzas(path.read_text(encoding="utf-8"))
    return [source for source in (_keep_distribution(source, suite) for source in found) if source]


def write_secrets(folder: Path, sources: Iterable[AptSource], environ: Mapping[str, str]) -> dict[str, Path]:
    """Write the secrets of a build into ``folder`` and return their files by secret id; what is unset is left out."""
    ca = _find_ca(environ)
    texts = {
        "apt-sources": "\n".join(as_stanza(source) for source in sources),
        "apt-conf": _apt_conf(ca is not None),
        "pip-conf": _pip_conf(ca is not None, environ),
    }
    secrets = {name: folder / name for name, text in texts.items() if text}
    for name, path in secrets.items():
        path.write_text(texts[name], encoding="utf-8")
    return secrets | ({"ca": ca} if ca else {})


def as_stanza(source: AptSource) -> str:
    """Return the source as apt reads it in a ``.sources`` file."""
    lines = ["Types: deb", f"URIs: {' '.join(source.uris)}", f"Suites: {' '.join(source.suites)}"]
    lines.append(f"Components: {' '.join(source.components)}")
    if source.signed_by:
        lines.append(f"Signed-By: {source.signed_by}")
    if source.trusted:
        lines.append("Trusted: yes")
    return "\n".join(lines) + "\n"


def apt_proxy() -> str:
    """Return the proxy that apt is told to use, or an empty string."""
    match = re.search(r'^Acquire::http::Proxy "(http[^"]+)";$', _dump_apt_settings(), re.MULTILINE | re.IGNORECASE)
    return match[1] if match else ""


def _parse_one_line_format(text: str) -> Iterator[AptSource]:
    for line in text.splitlines():
        match = re.match(r"deb\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)\s+([^#]+)", line.strip())
        if match:
            options = dict(item.partition("=")[::2] for item in (match[1] or "").split())
            trusted = options.get("trusted", "no") == "yes"
            signed_by = options.get("signed-by", "")
            yield AptSource((match[2],), (match[3],), tuple(match[4].split()), signed_by, trusted)


def _parse_stanzas(text: str) -> Iterator[AptSource]:
    kept = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for stanza in re.split(r"\n\s*\n", kept):
        lines = re.sub(r"\n[ \t]+", " ", stanza).split("\n")
        fields = {key.lower(): value.split() for key, _, value in (line.partition(":") for line in lines)}
        if "deb" in fields.get("types", []) and fields.get("enabled") != ["no"]:
            uris, suites, components = (tuple(fields.get(name, [])) for name in ("uris", "suites", "components"))
            signed_by, trusted = " ".join(fields.get("signed-by", [])), fields.get("trusted") == ["yes"]
            yield AptSource(uris, suites, components, signed_by, trusted)


def _keep_distribution(source: AptSource, suite: str) -> AptSource | None:
    uris = tuple(uri for uri in source.uris if uri.startswith(("http://", "https://")))
    suites = tuple(name for name in source.suites if name in (suite, f"{suite}-updates", f"{suite}-security"))
    foreign = source.signed_by and not DISTRIBUTION_KEYRING.search(source.signed_by)
    if foreign or not uris or not suites:
        return None
    return AptSource(uris, suites, source.components, source.signed_by, source.trusted)


def _find_ca(environ: Mapping[str, str]) -> Path | None:
    for name in (environ.get("SSL_CERT_FILE", ""), *CA_FILES):
        if name and Path(name).is_file() and Path(name).stat().st_size <= SECRET_LIMIT:
            return Path(name)
    return None


def _apt_conf(has_ca: bool) -> str:
    lines = [line for line in _dump_apt_settings().splitlines() if APT_SETTING.match(line)]
    if has_ca:
        lines.append(f'Acquire::https::CaInfo "{CA_IN_BUILD}";')
    return "".join(f"{line}\n" for line in lines)


def _dump_apt_settings() -> str:
    try:
        return subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=False, timeout=20).stdout
    except FileNotFoundError:
        return ""


def _pip_conf(has_ca: bool, environ: Mapping[str, str]) -> str:
    values: dict[str, str] = {}
    home = Path(environ.get("HOME", "/root"))
    config_home = Path(environ.get("XDG_CONFIG_HOME", home / ".config"))
    for path in (Path("/etc/pip.conf"), home / ".pip/pip.conf", config_home / "pip/pip.conf"):
        values |= _read_pip_options(path)
    if environ.get("PIP_CONFIG_FILE", os.devnull) != os.devnull:
        values |= _read_pip_options(Path(environ["PIP_CONFIG_FILE"]))
    for option in PIP_OPTIONS:
        values[option] = environ.get(f"PIP_{option.replace('-', '_').upper()}", values.get(option, ""))
    # Folders of this machine do not exist in the build.
    for option in ("index-url", "extra-index-url"):
        values[option] = " ".join(url for url in values[option].split() if url.startswith(("http://", "https://")))
    if has_ca:
        values["cert"] = CA_IN_BUILD
    lines = [f"{option} = {' '.join(value.split())}\n" for option, value in values.items() if value.strip()]
    return "".join(("[global]\n", *lines)) if lines else ""


def _read_pip_options(path: Path) -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.read(path, encoding="utf-8")
    found: dict[str, str] = {}
    for section in ("global", "install"):
        if parser.has_section(section):
            found |= {option: parser.get(section, option, fallback="") for option in PIP_OPTIONS}
    return {option: value for option, value in found.items() if value}
