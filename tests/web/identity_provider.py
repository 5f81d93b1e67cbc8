"""A small provider of identities (OpenID Connect) that really answers: discovery, keys, token, userinfo."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT_ID, CLIENT_SECRET = "portal", "a secret between the two"
KEY = rsa.generate_private_key(65537, 2048)
FOREIGN_KEY = rsa.generate_private_key(65537, 2048)


class Provider:
    """``person`` is who has signed in there. The other fields make it misbehave."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.person: dict[str, Any] = {}
        self.key = KEY
        self.token_over: dict[str, Any] = {}
        self.userinfo_over: dict[str, Any] = {}
        self.refuses = False
        self._codes: dict[str, dict[str, str]] = {}

    def authorize(self, url: str, **over: str) -> str:
        """Let the person sign in; returns the address to which the browser is sent back."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        assert url.startswith(f"{self.url}/authorize?")
        assert (asked["client_id"], asked["response_type"]) == (CLIENT_ID, "code")
        assert {"openid", "email", "profile"} <= set(asked["scope"].split())
        assert asked["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe()
        self._codes[code] = asked
        back = {"code": code, "state": asked["state"]} | over
        return f"{asked['redirect_uri']}?" + "&".join(f"{name}={value}" for name, value in back.items())

    def answer(self, method: str, path: str, form: dict[str, str], token: str) -> tuple[int, Any]:
        """Return the status and body for one request."""
        if self.refuses:
            return 500, {}
        if path == "/.well-known/openid-configuration":
            return 200, self._configuration()
        if path == "/keys":
            public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key()))
            return 200, {"keys": [public | {"kid": "k1", "alg": "RS256", "use": "sig"}]}
        if (method, path) == ("POST", "/token"):
            return self._exchange(form)
        if path == "/userinfo" and token == "Bearer for-userinfo":
            return 200, self.person | self.userinfo_over
        return 404, {}

    def _configuration(self) -> dict[str, Any]:
        places = {"authorization": "authorize", "token": "token", "userinfo": "userinfo"}
        found = {f"{name}_endpoint": f"{self.url}/{path}" for name, path in places.items()}
        methods = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
        return {"issuer": self.url, "jwks_uri": f"{self.url}/keys"} | found | methods

    def _exchange(self, form: dict[str, str]) -> tuple[int, Any]:
        asked = self._codes.pop(form.get("code", ""), None)
        if asked is None or (form.get("client_id"), form.get("client_secret")) != (CLIENT_ID, CLIENT_SECRET):
            return 400, {"error": "invalid_grant"}
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != asked["code_challenge"]:
            return 400, {"error": "invalid_grant"}
        assert form["redirect_uri"] == asked["redirect_uri"]
        said = {"iss": self.url, "aud": CLIENT_ID, "exp": time.time() + 60, "iat": time.time(), "sub": ""}
        signed = jwt.encode(said | self.person | self.token_over, self.key, "RS256", headers={"kid": "k1"})
        return 200, {"access_token": "for-userinfo", "token_type": "Bearer", "id_token": signed}


class _Handler(BaseHTTPRequestHandler):
    provider: Provider

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        form = {name: values[0] for name, values in parse_qs(body).items()}
        path = urlsplit(self.path).path
        status, said = self.provider.answer(self.command, path, form, self.headers.get("Authorization", ""))
        content = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = _serve

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def identity_provider() -> Iterator[Provider]:
    """Run a provider on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    provider = Provider(f"http://127.0.0.1:{server.server_port}")
    _Handler.provider = provider
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
