"""What a hostile client can write on a connection, all at once on one stage: each gets a clear answer in time, no odd
request reaches the app, and nothing of one visitor reaches another."""

from __future__ import annotations

import asyncio
import re

import pytest

from tests.appproxy.stage import Stage, stage

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.asyncio]
BAIT = b"GET /smuggled HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n\r\n"
CHUNKED = "Transfer-Encoding: chunked"
_KEY = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="
UPGRADE = f"Connection: Upgrade\r\nUpgrade: websocket\r\n{_KEY}"
REFUSED = frozenset({400, 401, 403, 404, 405, 408, 411, 413, 414, 417, 421, 431, 501, 505})

# Name, what is sent before the Host and Cookie headers, and what after them. All of it must be refused.
REFUSALS: list[tuple[str, str, bytes]] = [
    ("length and chunked", f"POST /a HTTP/1.1\r\nContent-Length: 5\r\n{CHUNKED}", b"0\r\n\r\n" + BAIT),
    ("chunked and length", f"POST /a HTTP/1.1\r\n{CHUNKED}\r\nContent-Length: 5", b"0\r\n\r\n" + BAIT),
    ("two lengths", "POST /a HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 44", BAIT),
    ("the same length twice in one line", "POST /a HTTP/1.1\r\nContent-Length: 5, 5", b"12345"),
    ("a length with a sign", "POST /a HTTP/1.1\r\nContent-Length: +5", b"12345"),
    ("a negative length", "POST /a HTTP/1.1\r\nContent-Length: -1", BAIT),
    ("a hexadecimal length", "POST /a HTTP/1.1\r\nContent-Length: 0x5", b"12345"),
    ("a length with an underscore", "POST /a HTTP/1.1\r\nContent-Length: 1_0", b"1234567890"),
    ("a length that is no number", "POST /a HTTP/1.1\r\nContent-Length: five", b"12345"),
    ("a length of Arabic digits", "POST /a HTTP/1.1\r\nContent-Length: \u00b2", b"12"),
    ("an unknown coding", "POST /a HTTP/1.1\r\nTransfer-Encoding: xchunked", b"0\r\n\r\n" + BAIT),
    ("a coding behind a vertical tab", "POST /a HTTP/1.1\r\nTransfer-Encoding:\x0bchunked", b"0\r\n\r\n" + BAIT),
    ("chunked twice", f"POST /a HTTP/1.1\r\n{CHUNKED}\r\n{CHUNKED}", b"0\r\n\r\n" + BAIT),
    ("chunked, then identity", f"POST /a HTTP/1.1\r\n{CHUNKED}\r\nTransfer-Encoding: identity", b"0\r\n\r\n"),
    ("identity in one line with chunked", "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked, identity", b"0\r\n\r\n"),
    ("a blank before the colon", "POST /a HTTP/1.1\r\nTransfer-Encoding : chunked", b"0\r\n\r\n"),
    ("a bare LF in a chunk head", f"POST /a HTTP/1.1\r\n{CHUNKED}", b"5;\n\nabcde\r\n0\r\n\r\n"),
    ("a chunk without a size", f"POST /a HTTP/1.1\r\n{CHUNKED}", b"\r\nabcde\r\n0\r\n\r\n"),
    ("a chunk with a signed size", f"POST /a HTTP/1.1\r\n{CHUNKED}", b"+5\r\nabcde\r\n0\r\n\r\n"),
    ("a chunk with a prefix", f"POST /a HTTP/1.1\r\n{CHUNKED}", b"0x5\r\nabcde\r\n0\r\n\r\n"),
    ("a chunk with an underscore", f"POST /a HTTP/1.1\r\n{CHUNKED}", b"1_0\r\nabcde\r\n0\r\n\r\n"),
    ("a chunk longer than it says", f"POST /a HTTP/1.1\r\n{CHUNKED}", b"2\r\nabcde\r\n0\r\n\r\n"),
    ("a chunk of 2^68 bytes", f"POST /a HTTP/1.1\r\n{CHUNKED}", b"100000000000000005\r\nabcde\r\n0\r\n\r\n"),
    ("a folded header", "GET /a HTTP/1.1\r\nX-Fold: a\r\n b", b""),
    ("a fold as the first line", "GET /a HTTP/1.1\r\n X-Fold: a", b""),
    ("a NUL in a value", "GET /a HTTP/1.1\r\nX-Null: a\0b", b""),
    ("a NUL in the path", "GET /a\0b HTTP/1.1", b""),
    ("a CR in a value", "GET /a HTTP/1.1\r\nX-Return: a\rX-More: b", b""),
    ("a blank in a name", "GET /a HTTP/1.1\r\nX Space: a", b""),
    ("a header without a name", "GET /a HTTP/1.1\r\n: nameless", b""),
    ("a header without a colon", "GET /a HTTP/1.1\r\nnocolon", b""),
    ("a name in quotes", 'GET /a HTTP/1.1\r\n"X": a', b""),
    ("a name with a bracket", "GET /a HTTP/1.1\r\nX(a): a", b""),
    ("a name outside of ASCII", "GET /a HTTP/1.1\r\nX-\u00e9: a", b""),
    ("a header of 100 kB", f"GET /a HTTP/1.1\r\nX-Long: {'a' * 100_000}", b""),
    ("a path of 100 kB", f"GET /{'a' * 100_000} HTTP/1.1", b""),
    ("an address of elsewhere", "GET http://other.example/ HTTP/1.1", b""),
    ("an address with a name and a password", "GET http://a:b@other.example/ HTTP/1.1", b""),
    ("an address of a file", "GET file:///etc/passwd HTTP/1.1", b""),
    ("a path without a slash", "GET a HTTP/1.1", b""),
    ("a star", "OPTIONS * HTTP/1.1", b""),
    ("CONNECT", "CONNECT other.example:443 HTTP/1.1", b""),
    ("TRACE", "TRACE /a HTTP/1.1", b""),
    ("an unknown method", "BREW /a HTTP/1.1", b""),
    ("a method in lower case", "get /a HTTP/1.1", b""),
    ("a method outside of ASCII", "G\u00c8T /a HTTP/1.1", b""),
    ("a method of 10 kB", f"{'A' * 10_000} /a HTTP/1.1", b""),
    ("no method", " /a HTTP/1.1", b""),
    ("no version", "GET /a", b""),
    ("a version of the future", "GET /a HTTP/3.7", b""),
    ("a version that is none", "GET /a HTTP/x.y", b""),
    ("another protocol", "GET /a ICY/1.1", b""),
    ("the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b""),
    ("a greeting of TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b""),
    ("a websocket with a length", f"GET /ws HTTP/1.1\r\n{UPGRADE}\r\nContent-Length: 44", BAIT),
    ("a websocket in chunks", f"GET /ws HTTP/1.1\r\n{UPGRADE}\r\n{CHUNKED}", b"0\r\n\r\n" + BAIT),
    ("a websocket of another site", f"GET /ws HTTP/1.1\r\n{UPGRADE}\r\nOrigin: http://evil.example", b""),
    ("a websocket of no site", f"GET /ws HTTP/1.1\r\n{UPGRADE}\r\nOrigin: null", b""),
    ("a form of another site", "POST /a HTTP/1.1\r\nOrigin: http://evil.example\r\nContent-Length: 1", b"x"),
    ("a picture in another site", "GET /a HTTP/1.1\r\nSec-Fetch-Site: same-site\r\nSec-Fetch-Mode: no-cors", b""),
    ("a frame in another site", "GET /a HTTP/1.1\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n"
     "Sec-Fetch-Dest: iframe", b""),
    ("a code in the address", "GET /.backendai/enter?code=x HTTP/1.1", b""),
    ("a code without a length", f"POST /.backendai/enter HTTP/1.1\r\n{CHUNKED}", b"6\r\ncode=x\r\n0\r\n\r\n"),
    ("a code of a megabyte", "POST /.backendai/enter HTTP/1.1\r\nContent-Length: 1048576", b"code="),
    ("a forged code", "POST /.backendai/enter HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n"
     "Content-Length: 6", b"code=x"),
]  # fmt: skip

# What is sent as the Host header; a name that is no app of hers opens nothing, and neither do two of them.
HOSTS = [
    "", "other-0123456789ab.apps.localhost", "apps.localhost", "localhost", "127.0.0.1", "[::1]", "{host}.",
    "{host}.evil.example", "{host}\r\nHost: other-0123456789ab.apps.localhost", "a@{host}", "{host}/x",
    "{host}:99999999", "{host} ", "{host}\t{host}", "..{host}", "-{host}", "%00{host}",
]  # fmt: skip


async def ask(here: Stage, raw: bytes) -> bytes:
    """Return all that comes back until the other side closes, or rests for half a second after it has started."""
    reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
    writer.write(raw)
    answer = b""
    try:
        while data := await asyncio.wait_for(reader.read(65536), 0.5 if answer else 5.0):
            answer += data
    except (TimeoutError, ConnectionError):
        pass
    writer.transport.abort()
    return answer


def statuses(answer: bytes) -> list[int]:
    """Return the statuses of the answers, in their order."""
    return [int(code) for code in re.findall(rb"(?:\A|\n|\})HTTP/\d\.\d (\d{3})", answer)]


async def test_no_odd_request_reaches_the_app_and_each_has_an_answer() -> None:
    async with stage() as here:
        cookie = await here.enter()
        told = {b"{host}": here.netloc.encode(), b"{cookie}": cookie.encode()}

        def filled(raw: bytes) -> bytes:
            for name, value in told.items():
                raw = raw.replace(name, value)
            return raw

        def whole(head: str, body: bytes) -> bytes:
            return f"{head}\r\nHost: {here.netloc}\r\nCookie: {cookie}\r\n\r\n".encode("latin-1") + filled(body)

        answers = await asyncio.gather(*(ask(here, whole(head, body)) for _, head, body in REFUSALS))
        odd = {
            name: (found, answer[:80])
            for (name, _, _), answer in zip(REFUSALS, answers, strict=True)
            if not (found := statuses(answer)) or not set(found) <= REFUSED or len(found) > 1
        }
        assert odd == {}
        assert [request.raw_path for request in here.app.requests] == []
        assert b"smuggled" not in b"".join(answers)
        assert cookie.encode() not in b"".join(answers)
        assert (await here.ask("GET", "/after", cookie=cookie)).status == 200


async def test_no_odd_host_opens_anything() -> None:
    async with stage() as here:
        cookie = await here.enter()
        name = here.host
        lines = [
            f"GET /a HTTP/1.1\r\nHost: {host.replace('{host}', name)}\r\nCookie: {cookie}\r\n\r\n" for host in HOSTS
        ]
        lines += [f"GET /a HTTP/1.1\r\nCookie: {cookie}\r\n\r\n", f"GET /a HTTP/1.0\r\nCookie: {cookie}\r\n\r\n"]
        answers = await asyncio.gather(*(ask(here, line.encode("latin-1")) for line in lines))
        opened = [line for line, answer in zip(lines, answers, strict=True) if not set(statuses(answer)) <= REFUSED]
        # A dot at the end, a blank around it and a port are other spellings of the same name.
        same = {f"{name}.", f"{name} ", f"{name}:99999999"}
        assert {line.split("Host: ")[1].split("\r\n")[0] for line in opened} <= same
        assert all(statuses(answer) for answer in answers)
        assert b"backendai-app=" not in b"".join(answers)


async def test_half_a_request_holds_nobody_else_up() -> None:
    halves = [b"", b"G", b"GET /a HTTP/1.1", b"GET /a HTTP/1.1\r\nHost: x", b"\r\n" * 50, b"\0" * 500]
    async with stage() as here:
        cookie = await here.enter()
        waiting = [await asyncio.open_connection("127.0.0.1", here.port) for _ in range(10 * len(halves))]
        for number, (_, writer) in enumerate(waiting):
            writer.write(halves[number % len(halves)])
        answers = await asyncio.gather(*(here.ask("GET", f"/{number}", cookie=cookie) for number in range(20)))
        assert {answer.status for answer in answers} == {200}
        for _, writer in waiting:
            writer.transport.abort()


async def test_an_upgrade_with_a_body_leaves_nothing_for_the_next_visitor() -> None:
    async with stage() as here:
        cookie = await here.enter()
        head = f"GET /a HTTP/1.1\r\n{UPGRADE}\r\nContent-Length: 100\r\nHost: {here.netloc}\r\nCookie: {cookie}\r\n\r\n"
        answer = await ask(here, head.encode() + b"x" * 100)
        assert statuses(answer) == [400] and b"upgrade-with-body" in answer
        after = await asyncio.gather(*(here.ask("GET", f"/b{number}", cookie=cookie) for number in range(8)))
        assert [await one.text() for one in after] == [f"GET /b{number}" for number in range(8)]


async def test_an_app_that_answers_an_upgrade_plainly_gives_its_connection_up() -> None:
    async with stage() as here:
        cookie = await here.enter()
        head = f"GET /plain HTTP/1.1\r\n{UPGRADE}\r\nHost: {here.netloc}\r\nCookie: {cookie}\r\n\r\n"
        assert statuses(await ask(here, head.encode())) == [200]
        after = await here.ask("GET", "/b", cookie=cookie)
        assert await after.text() == "GET /b"
        ports = {request.transport.get_extra_info("peername") for request in here.app.requests if request.transport}
        assert len(here.app.requests) == 2 and len(ports) <= 2
