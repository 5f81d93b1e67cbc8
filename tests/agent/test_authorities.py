"""The certificate authorities of a kernel: the system's and the site's, in files that its variables name."""

from __future__ import annotations

import ssl
from pathlib import Path

from backendai.agent.backends.docker.create import container_body
from backendai.agent.backends.docker.disk.scratch import Scratch
from backendai.agent.backends.shared.authorities import INSIDE, authority_environ, write_authorities
from tests.agent.specs import make_spec
from tests.certificates import certificate


def loaded(path: Path) -> set[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(path)
    return {dict(part[0] for part in each["subject"]).get("commonName", "") for each in context.get_ca_certs()}


def test_public_authorities_stay_trusted_beside_those_of_the_site(tmp_path: Path) -> None:
    write_authorities(tmp_path / "ca", make_spec(authorities=certificate()))
    everything = loaded(tmp_path / "ca" / "all.pem")
    assert "Lab Root CA" in everything and len(everything) > 50
    assert loaded(tmp_path / "ca" / "site.pem") == {"Lab Root CA"}
    assert (tmp_path / "ca" / "all.pem").stat().st_mode & 0o777 == 0o644


def test_a_container_finds_them_read_only_and_own_variables_win(tmp_path: Path) -> None:
    spec = make_spec(authorities=certificate(), environ={"PIP_CERT": "/mine.pem"})
    folder = Scratch(tmp_path, None).prepare_authorities(spec)
    body = container_body(spec, labels={}, scratch=tmp_path, network="none", cpus=1, authorities=folder)
    environ = dict(line.split("=", 1) for line in body["Env"])
    assert environ["SSL_CERT_FILE"] == environ["GIT_SSL_CAINFO"] == f"{INSIDE}/all.pem"
    assert (environ["NODE_EXTRA_CA_CERTS"], environ["PIP_CERT"]) == (f"{INSIDE}/site.pem", "/mine.pem")
    mount = next(each for each in body["HostConfig"]["Mounts"] if each["Target"] == INSIDE)
    assert (mount["Source"], mount["ReadOnly"]) == (str(folder), True)


def test_without_authorities_nothing_is_written_or_named(tmp_path: Path) -> None:
    spec = make_spec()
    assert Scratch(tmp_path, None).prepare_authorities(spec) is None
    assert authority_environ(spec, INSIDE) == {}
    assert list(tmp_path.iterdir()) == []


def test_they_go_with_the_kernel(tmp_path: Path) -> None:
    spec, scratch = make_spec(authorities=certificate()), Scratch(tmp_path, None)
    scratch.prepare_authorities(spec)
    scratch.sweep(set())
    assert list(tmp_path.iterdir()) == []
