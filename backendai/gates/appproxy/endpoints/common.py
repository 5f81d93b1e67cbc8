"""Serves the address that all endpoints share, in the form of OpenAI's API.

The model in a request's body selects the endpoint; the token decides which models are available.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from aiohttp import web
from django.conf import settings

from backendai.domain.cluster.app_domains import COMMON_LABEL
from backendai.domain.serving.endpoint_table import EndpointEntry
from backendai.gates.appproxy.endpoints.refusals import Refused
from backendai.gates.appproxy.endpoints.replicas import Pool
from backendai.gates.appproxy.relay import BODY_SECONDS, ask_for_body

LARGEST_BODY = 2**20
_MODELS = "/v1/models"
_MOST_NAMED = 20


def is_common(host: str) -> bool:
    """Return whether this host name is the address that all endpoints share."""
    return host == f"{COMMON_LABEL}.{settings.APPS_DOMAIN}"


@dataclass(frozen=True, slots=True)
class Available:
    """The endpoints that a caller may use: ``own``, which the token opens, and other ``public`` ones."""

    own: Sequence[Pool]
    public: Sequence[Pool]

    def __iter__(self) -> Iterator[Pool]:
        return chain(self.own, self.public)


def opened_by(pools: Iterable[Pool], digest: str, now: float) -> Available:
    """Return the endpoints that this token may use, and the public endpoints. Raises Refused for a token that opens
    none, or without any endpoint.
    """
    everything = sorted(pools, key=lambda one: one.endpoint.label)
    own = [one for one in everything if digest and _opens(one.endpoint, digest, now)]
    public = [one for one in everything if one.endpoint.is_open and one not in own]
    if not own and (digest or not public):
        message = "A valid token of an endpoint is needed: send it as 'Authorization: Bearer TOKEN'."
        raise Refused(401, "token-refused", message)
    return Available(own, public)


def origins_of(pools: Iterable[Pool]) -> set[str]:
    """Return the web origins that these endpoints allow."""
    return {origin for one in pools for origin in one.endpoint.origins}


def model_of(endpoint: EndpointEntry) -> str:
    """Return the endpoint's name in the list of models: its model's name, else its own name."""
    return endpoint.model_name or endpoint.name


def models_answer(request: web.BaseRequest, pools: Available) -> web.Response | None:
    """Return the answer to a GET for the list of models or one model; None for other methods. Raises Refused for an
    unknown model or path.
    """
    path = request.path.rstrip("/")
    if request.method not in ("GET", "HEAD"):
        return None
    if path == _MODELS:
        entries = [_entry(name) for name in sorted({model_of(one.endpoint) for one in pools})]
        return web.json_response({"object": "list", "data": entries})
    if path.startswith(f"{_MODELS}/"):
        model = path.removeprefix(f"{_MODELS}/")
        pool_for(pools, model)
        return web.json_response(_entry(model))
    raise Refused(404, "unknown-address", f"This address answers GET {_MODELS} and POST to paths under /v1.")


async def model_asked_for(request: web.BaseRequest) -> tuple[str, bytes]:
    """Return the model named in the JSON body, and the body. Raises Refused for another path, a body that is too large
    or late, or a missing model.
    """
    own = "Send it to the endpoint's own address."
    if request.method != "POST" or not request.path.startswith("/v1/"):
        raise Refused(404, "unknown-address", f"This address answers GET {_MODELS} and POST to paths under /v1.")
    if (request.content_length or 0) > LARGEST_BODY:
        raise Refused(413, "body-too-large", f"A body has at most {LARGEST_BODY} bytes at this address. {own}")
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await _read(request)
        said: Any = json.loads(body)
    except TimeoutError:
        raise Refused(408, "too-slow", "The body did not arrive in time.") from None
    except (ValueError, RecursionError):
        raise Refused(400, "invalid-json", f"The body is no JSON: the model cannot be read from it. {own}") from None
    model = said.get("model") if isinstance(said, dict) else None
    if not isinstance(model, str) or not model:
        raise Refused(400, "model-missing", "Name the model in 'model'; GET /v1/models lists those that you may use.")
    return model, body


def pool_for(pools: Available, model: str) -> Pool:
    """Return the pool of the endpoint with this host label, model name or endpoint name. Public endpoints of others are
    searched only if the token opens none by any of these names: anybody can give theirs the name of another. Raises
    Refused for an unknown or ambiguous name.
    """
    found = _named(pools.own, model) or _named(pools.public, model)
    if len(found) == 1:
        return found[0]
    if found:
        labels = ", ".join(one.endpoint.label for one in found[:_MOST_NAMED])
        message = f"{len(found)} endpoints serve a model named {_short(model)}: name one of {labels}."
        raise Refused(400, "model-ambiguous", message)
    names = ", ".join(sorted({_short(model_of(one.endpoint)) for one in pools})[:_MOST_NAMED])
    raise Refused(404, "model-not-found", f"Model {_short(model)} not found for this token. Available models: {names}.")


async def _read(request: web.BaseRequest) -> bytes:
    ask_for_body(request)
    body = bytearray()
    async for piece in request.content.iter_any():
        body += piece
        if len(body) > LARGEST_BODY:
            text = f"A body has at most {LARGEST_BODY} bytes at this address. Send it to the endpoint's own address."
            raise Refused(413, "body-too-large", text)
    return bytes(body)


def _named(pools: Sequence[Pool], model: str) -> list[Pool]:
    return (
        [one for one in pools if one.endpoint.label == model]
        or [one for one in pools if model_of(one.endpoint) == model]
        or [one for one in pools if one.endpoint.name == model]
    )


def _opens(endpoint: EndpointEntry, digest: str, now: float) -> bool:
    return any(one.digest == digest and not one.is_over(now) for one in endpoint.tokens)


def _entry(model: str) -> dict[str, object]:
    return {"id": model, "object": "model", "created": 0, "owned_by": settings.APPS_DOMAIN}


def _short(name: str) -> str:
    return repr(name if len(name) <= 80 else f"{name[:79]}…")
