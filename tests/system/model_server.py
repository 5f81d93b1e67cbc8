"""A model server in OpenAI's form for tests, from the standard library alone: its source is the command of a replica.

It fails as the variable FAULT or the field ``fault`` of a request says: ``exit`` at its start, or ``deaf`` from then
on; ``hang``, ``memory`` (takes more than there is), ``garbage``, ``lies`` (about the length), ``breaks`` (in the
stream). It answers with its name after ``seconds``, and streams one word at a time.
"""

import asyncio
import json
import os

FAULT, DELAY = os.environ.get("FAULT", ""), 0.02
NAME = os.environ.get("BACKENDAI_KERNEL_ID") or os.environ.get("HOSTNAME", "")
WORDS = ["one", "two", "three", "four"]
HELD = []


async def serve(reader, writer):
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            method, path, _ = head.decode().split("\r\n")[0].split(" ")
            lengths = [line for line in head.decode().lower().split("\r\n") if line.startswith("content-length:")]
            body = await reader.readexactly(int(lengths[0].split(":")[1])) if lengths else b""
            await answer(writer, method, path, json.loads(body or b"{}"))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def answer(writer, method, path, said):
    if path == "/health":
        send(writer, {"status": "ok"})
        return
    fault = said.get("fault")
    if fault == "hang":
        await asyncio.sleep(3600)
    while fault == "memory":
        HELD.append(bytearray(b"1" * 2**24))
    await asyncio.sleep(said.get("seconds", DELAY))
    if fault == "garbage":
        writer.write(b"this is no HTTP\r\n\r\n")
        writer.close()
        return
    if fault == "lies":
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nshort")
        writer.close()
        return
    if said.get("stream"):
        await stream(writer, said)
        return
    message = {"role": "assistant", "content": NAME}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    send(writer, {"id": "1", "object": "chat.completion", "created": 0, "model": "test", "choices": [choice]})


async def stream(writer, said):
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    for word in [NAME, *WORDS]:
        choice = {"index": 0, "delta": {"content": f"{word} "}, "finish_reason": None}
        event = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "test", "choices": [choice]}
        data = b"data: " + json.dumps(event).encode() + b"\n\n"
        writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        await writer.drain()
        await asyncio.sleep(DELAY)
        if said.get("fault") == "breaks":
            writer.close()
            return
    data = b"data: [DONE]\n\n"
    writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data))


def send(writer, said):
    data = json.dumps(said).encode()
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data))
    writer.write(data)


async def main():
    if FAULT == "exit":
        raise SystemExit("this revision is broken")
    if FAULT == "deaf":
        await asyncio.sleep(3600)
    server = await asyncio.start_server(serve, os.environ["HOST"], int(os.environ["PORT"]))
    await server.serve_forever()


asyncio.run(main())
