"""A launch request as commands of a script, for people who have filled in the form once and want it every night."""

from __future__ import annotations

import json
import shlex
from pprint import pformat
from typing import Any, NamedTuple

from django.http import HttpRequest
from django.urls import reverse

from backendai.domain.compute.spec import SessionSpec
from backendai.domain.compute.spec_document import document_of
from backendai.portal.web.launch.review import Review

_WIDTH = 88
_CURL = """curl -fsS {url} \\
  -H "Authorization: Bearer $BAI_TOKEN" \\
  -H "Content-Type: application/json" \\
  -d {body}"""
_BAI = "bai api POST /sessions/ -d {body}"
_PYTHON = """import os

import requests

answer = requests.post(
    {url!r},
    headers={{"Authorization": "Bearer " + os.environ["BAI_TOKEN"]}},
    json={body},
)
answer.raise_for_status()
print(answer.json()["id"])"""
_OF_ONE_LAUNCH = ("version", "launch_id")


class Script(NamedTuple):
    """The text of a script in a language."""

    language: str
    text: str


def scripts_beside(review: Review | None, request: HttpRequest) -> list[Script]:
    """Return a valid launch of one session as scripts; of an array, and of several sessions, nothing."""
    if review is None or not review.checked or review.elements or review.sessions > 1:
        return []
    return scripts_of(review.checked.spec, request.build_absolute_uri(reverse("api:sessions")))


def scripts_of(spec: SessionSpec, url: str) -> list[Script]:
    """Return the request as scripts for this address of the REST API."""
    document: dict[str, Any] = {name: value for name, value in document_of(spec).items() if name not in _OF_ONE_LAUNCH}
    body = pformat(document, width=_WIDTH, sort_dicts=False).replace("\n", "\n         ")
    quoted = shlex.quote(json.dumps(document, indent=2, ensure_ascii=False))
    return [
        Script("bai", _BAI.format(body=quoted)),
        Script("curl", _CURL.format(url=shlex.quote(url), body=quoted)),
        Script("Python", _PYTHON.format(url=url, body=body)),
    ]
