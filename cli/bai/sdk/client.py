"""``Client`` sends calls and waits for their answers; ``Sender`` is what it shares with ``AsyncClient``."""

from __future__ import annotations

import platform
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from bai import VERSION
from bai.sdk.call import Answer, Call, Page, Unreachable

if TYPE_CHECKING:
    import ssl

    import httpx

T = TypeVar("T")
_SECONDS, _CONNECT_SECONDS, _FILE_SECONDS = 30.0, 10.0, 300.0


class Sender:
    """``token`` is sent in a header only. ``profile``: the name for messages; ``ca``: a file of certificates to trust;
    ``is_checked``: whether certificates are."""

    def __init__(self, url: str, token: str = "", profile: str = "", *, ca: str = "", is_checked: bool = True) -> None:
        import httpx  # noqa: PLC0415  (a tenth of a second, which --help does not need)

        self.url, self.profile, self._token, self._tls = url.rstrip("/"), profile, token, (ca, is_checked)
        if urlsplit(self.url).scheme not in ("http", "https"):
            raise ValueError(f"{url!r} is no address: write https://…")
        self.headers = {"User-Agent": f"bai/{VERSION} (Python {platform.python_version()}; {platform.system()})"}
        self._httpx = httpx
        timeout = httpx.Timeout(_SECONDS, connect=_CONNECT_SECONDS)
        self._options: dict[str, Any] = {"headers": self.headers, "timeout": timeout, "verify": self.context() or True}

    @property
    def authorization(self) -> dict[str, str]:
        """The header that signs in."""
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def context(self) -> ssl.SSLContext | None:
        """Return how certificates are checked; None for http."""
        if not self.url.startswith("https:"):
            return None
        import ssl  # noqa: PLC0415

        ca, is_checked = self._tls
        context = ssl.create_default_context(cafile=ca or None)
        if not is_checked:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    def _arguments(self, call: Call[Any]) -> dict[str, Any]:
        """Return what the HTTP library sends."""
        address = call.address if call.is_outside else self.url + call.address
        headers = {**(self.authorization if call.is_signed_in else {}), **call.headers}
        told: dict[str, Any] = {"method": call.method, "url": address, "headers": headers}
        if call.content is not None:
            told |= {"content": call.content() if callable(call.content) else call.content, "timeout": _FILE_SECONDS}
        elif call.body is not None:
            told["json"] = call.body
        return told

    def _course(self, call: Call[T]) -> Generator[float, Answer | Exception, T]:
        """Yield the seconds before each attempt, take what came of it, and return the result."""
        wait = 0.0
        for attempt in count(1):
            outcome = yield wait
            if isinstance(outcome, Answer):
                later = call.wait_before_next(attempt, outcome)
                if later is None:
                    return call.result(outcome)
            else:
                was_sent = not isinstance(outcome, (self._httpx.ConnectError, self._httpx.ConnectTimeout))
                later = call.wait_before_next(attempt, None, was_sent=was_sent)
                if later is None:
                    raise self._away(outcome) from outcome
            wait = later
        raise AssertionError

    def _away(self, error: Exception) -> Unreachable:
        return Unreachable(f"{self.url} does not answer: {error or type(error).__name__}")


class Client(Sender):
    """Sends calls. Use as a context manager, or ``close`` it."""

    def __init__(self, url: str, token: str = "", profile: str = "", **options: Any) -> None:
        super().__init__(url, token, profile, **options)
        self._http = self._httpx.Client(**self._options)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(self, call: Call[T]) -> T:
        """Return the answer to a call, which is sent again where that is safe. Raises Problem and Unreachable."""
        call = call.prepared()
        course = self._course(call)
        outcome: Any = None  # with which a generator begins
        while True:
            try:
                wait = course.send(outcome)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            time.sleep(wait)
            try:
                outcome = answer_of(self._http.request(**self._arguments(call)))
            except self._httpx.TransportError as error:
                outcome = error

    def each(self, call: Call[Page[T]]) -> Iterator[T]:
        """Yield what is on this page and the following ones."""
        page = self.send(call)
        yield from page.results
        while page.next:
            page = self.send(call.following(page))
            yield from page.results

    @contextmanager
    def stream(self, call: Call[Any]) -> Iterator[httpx.Response]:
        """Open an answer whose body is read piece by piece. Raises Problem and Unreachable."""
        try:
            with self._http.stream(**{**self._arguments(call), "timeout": _FILE_SECONDS}) as response:
                if response.status_code >= 300:
                    response.read()
                    call.result(answer_of(response))
                yield response
        except self._httpx.TransportError as error:
            raise self._away(error) from error


def answer_of(response: httpx.Response) -> Answer:
    """Return an answer without its library."""
    return Answer(response.status_code, response.headers, response.content, response.json)
