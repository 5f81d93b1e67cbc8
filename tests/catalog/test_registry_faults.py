"""A registry that does not answer: the host, the cause and the time, and no names of Python classes."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from backendai.domain.catalog.registry_client import RegistryClient, Unreachable
from tests.certificates import KEY, certificate
from tests.patience import patient


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def said_of(url: str) -> str:
    with pytest.raises(Unreachable) as refused:
        next(RegistryClient(url).repositories())
    assert not re.search(r"Error|Exception|Connection\(", refused.value.message)
    assert re.search(r"\(after \d+\.\d s\)\.$", refused.value.message)
    return refused.value.message


def test_a_certificate_that_nobody_trusts(listener: socket.socket, tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text(certificate())
    (tmp_path / "key.pem").write_bytes(KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")

    def serve() -> None:
        with contextlib.suppress(OSError):
            context.wrap_socket(listener.accept()[0], server_side=True).close()

    thread = threading.Thread(target=serve)
    thread.start()
    port = listener.getsockname()[1]
    said = said_of(f"https://127.0.0.1:{port}")
    thread.join(patient(5))
    assert said.startswith(f"127.0.0.1 on port {port} cannot be reached: its certificate is not trusted, self")


def test_a_server_without_tls(listener: socket.socket) -> None:
    def serve() -> None:
        with listener.accept()[0] as connection:
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    thread = threading.Thread(target=serve)
    thread.start()
    assert "the TLS connection failed" in said_of(f"https://127.0.0.1:{listener.getsockname()[1]}")
    thread.join(patient(5))


def test_nothing_that_listens(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    listener.close()
    assert "the connection was refused" in said_of(f"http://127.0.0.1:{port}")


def test_a_name_without_an_address() -> None:
    assert "no address is found for the name" in said_of("http://nowhere.invalid")
