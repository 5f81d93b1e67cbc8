"""A person who signs requests as the official client does: the body is not covered."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from django.test import Client

from backendai.domain.accounts.models import User
from backendai.domain.accounts.services.key_pairs import create_key_pair
from backendai.domain.accounts.sign_in.signatures import Signed, sign

VERSION = "v7.20230615"
HOST = "testserver"


class Signer:
    """Has a key pair of its own. Answers are responses of Django's test client."""

    def __init__(self, user: User) -> None:
        self.user = user
        self.pair, self.secret = create_key_pair(user, "client")

    def headers(self, method: str, path: str, kind: str, *, date: str = "", secret: str = "") -> dict[str, str]:
        """Return the signed headers of a request."""
        date = date or datetime.now(UTC).isoformat()
        mark = sign(secret or self.secret, Signed(method, path, HOST, date, kind, VERSION))
        credential = f"{self.pair.access_key}:{mark}"
        told = f"BackendAI signMethod=HMAC-SHA256, credential={credential}"
        return {"Host": HOST, "Date": date, "X-BackendAI-Version": VERSION, "Authorization": told}

    def ask(self, method: str, path: str, body: Any = None, *, given: dict[str, str] | None = None, **meta: Any) -> Any:
        """Send a request; ``given``: these headers instead of freshly signed ones."""
        content, kind = (b"", "text/plain") if body is None else (json.dumps(body).encode(), "application/json")
        path = f"/compat{path}"
        headers = given or self.headers(method, path, kind)
        return Client().generic(
            method, path, content, content_type=kind, headers=headers, **{"CONTENT_TYPE": kind} | meta
        )

    def get(self, path: str, body: Any = None, **meta: Any) -> Any:
        return self.ask("GET", path, body, **meta)

    def post(self, path: str, body: Any = None, **meta: Any) -> Any:
        return self.ask("POST", path, body, **meta)

    def query(self, query: str, **variables: Any) -> Any:
        """Ask GraphQL; returns the answer's ``data``."""
        answer = self.post("/admin/gql", {"query": query, "variables": variables})
        assert answer.status_code == 200, answer.content
        return answer.json()["data"]
