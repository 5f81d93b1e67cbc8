"""An endpoint whose server is the web server of busybox, and what it answers through the app proxy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import requests

from tests.patience import until
from tests.system.client import TERMINAL, Client

PORT = 8000
COMMAND = "mkdir www && echo {words} >www/index.html && exec httpd -f -p 8000 -h www"


@contextmanager
def tiny_replica(client: Client, name: str, command: str, **revision: Any) -> Iterator[Callable[[], str]]:
    """Serve with one replica; gives what answers. At the end the endpoint is deleted and its sessions have ended."""
    wish = {"image": "tiny", "command": command, "port": PORT, "probe_path": "/", **revision}
    endpoint = client.post("endpoints/", {"name": name, "minimum": 1, "maximum": 1, **wish})
    path = f"endpoints/{endpoint['id']}/"
    token = client.post(f"{path}tokens/", {"name": "test"})["token"]
    host = endpoint["url"].partition("://")[2]
    url = f"http://127.0.0.1:{host.rpartition(':')[2]}/index.html"

    def answer() -> str:
        with requests.Session() as session:
            session.trust_env = False
            return session.get(url, headers={"Host": host, "Authorization": f"Bearer {token}"}, timeout=30).text

    try:
        yield answer
    finally:
        own = [one["session"] for one in client._get(f"{path}replicas/").json()["results"]]
        client._send("DELETE", path)
        until(lambda: all(client.session(one)["status"] in TERMINAL for one in own), 60, "its replicas have ended")
