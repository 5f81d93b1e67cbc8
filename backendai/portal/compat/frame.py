"""What all addresses of the official client's protocol share: who asks, what they say, and views made of handlers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponseBase
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backendai.base.core.errors import Overloaded, UserError
from backendai.base.core.messages import Message
from backendai.base.process.listeners import is_loopback
from backendai.domain.accounts.models import KeyPair, User
from backendai.domain.accounts.sign_in.signatures import SignatureRefused
from backendai.portal.api.frame.asynchronous import AsyncAPIView, look
from backendai.portal.api.frame.authentication import SignatureAuthentication, signing_pair, user_of
from backendai.portal.api.pipelines.runs import RunJSONParser
from backendai.portal.realtime.places import Places
from backendai.portal.realtime.targets import Refusal

PREFIX = "/compat"
MOST_HELD = 50  # answers of one person that are held until something happens, in one process
LONGEST_TEXT, LONGEST_PATH, MOST_TEXTS = 255, 4096, 100
_INSECURE = (
    "The signature of this client does not cover the body of a request, so it is accepted by HTTPS, or from the "
    "portal's own machine. Use the HTTPS address of the portal."
)
_METHODS = ("get", "post", "put", "patch", "delete")
Handler = Callable[..., Any]


class NotOffered(UserError):
    """The platform does not have what a command of the official client is for."""

    code = "not-implemented"


def check_way(*, is_secure: bool, address: str, is_forwarded: bool) -> None:
    """Raise SignatureRefused unless the request came by HTTPS or from this machine, and not from a proxy on it."""
    if not is_secure and (is_forwarded or not is_loopback(address)):
        raise SignatureRefused(_INSECURE, code="https-needed")


class ClientSignature(SignatureAuthentication):
    """The signature of the official client, which ends with the digest of an empty body."""

    def signed_body(self, plain: HttpRequest) -> bytes:
        """Return the signed body, an empty one. Raises SignatureRefused where somebody could change the real one."""
        meta = plain.META
        is_forwarded = "HTTP_X_FORWARDED_FOR" in meta or "HTTP_FORWARDED" in meta
        check_way(is_secure=plain.is_secure(), address=meta.get("REMOTE_ADDR", ""), is_forwarded=is_forwarded)
        return b""


class AnyTypeParser(RunJSONParser):
    """Parses JSON of any declared type, as the client calls an empty body ``text/plain``."""

    media_type = "*/*"


class Call:
    """A request of the client. What it says is looked up in the body, then in the query, and is always bounded."""

    def __init__(self, request: Request) -> None:
        self.request = request

    @property
    def user(self) -> User:
        """The user of the key pair."""
        return user_of(self.request)

    @property
    def pair(self) -> KeyPair:
        """The key pair."""
        pair = signing_pair(self.request)
        assert pair is not None
        return pair

    @cached_property
    def values(self) -> dict[str, Any]:
        """The values of query and body."""
        body = self.request.data
        if not isinstance(body, Mapping):
            raise UserError("Write names with their values.", code="invalid-body")
        return {**self.request.query_params.dict(), **body}

    def text(self, name: str, default: str | None = None, *, most: int = LONGEST_TEXT) -> str:
        """Return a text. Raises UserError if it is too long, or missing without a default."""
        value = self.values.get(name)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, str | int) or len(str(value)) > most or "\0" in str(value):
            raise UserError("{name} must be a text of {most} characters at most.", name=name, most=most, field=name)
        return str(value)

    def flag(self, name: str) -> bool:
        """Return whether a switch is on."""
        return str(self.values.get(name)).lower() in ("true", "1", "yes")

    def texts(self, name: str, *, most: int = LONGEST_PATH) -> list[str]:
        """Return a list of texts; in a query its name is repeated. Raises UserError."""
        found = self.values.get(name)
        found = self.request.query_params.getlist(name) if isinstance(found, str) else found or []
        is_list = isinstance(found, list) and len(found) <= MOST_TEXTS
        if not is_list or any(not isinstance(one, str) or len(one) > most or "\0" in one for one in found):
            raise UserError("{name} must be a list of {most} texts at most.", name=name, most=MOST_TEXTS, field=name)
        return list(found)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Count an answer that is held for the person. Raises Overloaded if too many are."""
        places = Places()
        try:
            places.take(("compat", str(self.user.pk)), MOST_HELD, Message("requests that wait"))
            yield
        except Refusal as refusal:
            raise Overloaded(str(refusal), code="too-many-requests") from refusal
        finally:
            places.leave()


class CompatView(APIView):
    """A view of the room: 404 unless the site has switched it on."""

    authentication_classes = [ClientSignature]
    parser_classes = [AnyTypeParser]
    schema = None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Raise Http404 while the room is off; authenticate and count the request otherwise."""
        if not settings.COMPAT:
            raise Http404
        super().initial(request, *args, **kwargs)


class AsyncCompatView(CompatView, AsyncAPIView):
    """A view that waits without a thread."""


def view(*, is_open: bool = False, **handlers: Any) -> Any:
    """Return the view that answers each method by its handler, a function of the call and the parts of the address.

    A handler returns a body, a body with its status, a response, or None for 204; other methods answer 501.
    ``is_open``: for strangers, too. Further names are attributes of the view.
    """
    functions = dict.fromkeys(_METHODS, unknown)
    functions |= {name: one for name, one in handlers.items() if name in (*_METHODS, "head")}
    waits = any(map(iscoroutinefunction, functions.values()))
    members: dict[str, Any] = {name: (_waiting if waits else _plain)(one) for name, one in functions.items()}
    members |= {name: one for name, one in handlers.items() if name not in functions}
    members |= {"permission_classes": [AllowAny], "authentication_classes": []} if is_open else {}
    kind: Any = type("CompatView", (AsyncCompatView if waits else CompatView,), members)
    return kind.as_view()


def unknown(call: Call, **parts: str) -> None:
    """Raise NotOffered, with the address."""
    what = f"{call.request.method} {call.request.path.removeprefix(PREFIX)[:LONGEST_TEXT]}"
    raise NotOffered("This platform does not offer {what} to this client. Use its pages or its REST API.", what=what)


def _plain(handler: Handler) -> Handler:
    def answer(self: CompatView, request: Request, **parts: str) -> HttpResponseBase:
        return _answered(handler(Call(request), **parts))

    return answer


def _waiting(handler: Handler) -> Handler:
    wait = handler if iscoroutinefunction(handler) else partial(look, handler)

    async def answer(self: CompatView, request: Request, **parts: str) -> HttpResponseBase:
        return _answered(await wait(Call(request), **parts))

    return answer


def _answered(made: Any) -> HttpResponseBase:
    if isinstance(made, HttpResponseBase):
        return made
    if isinstance(made, tuple):
        return Response(made[0], made[1])
    return Response(status=204) if made is None else Response(made)
