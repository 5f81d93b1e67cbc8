"""The requests of the portal that the command sends, each described once. ``api.session(id)`` is a call for a client.

Positional arguments fill the address; named ones are the query of GET, and the body of other methods.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from bai.sdk.call import Answer, Call, Json, Page, as_json
from bai.sdk.nouns import Agent, Endpoint, Folder, Image, Noun, Run, Session

N = TypeVar("N", bound=Noun)
T = TypeVar("T")
_GAP = re.compile(r"{(\w+)}")
_DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"


@dataclass(frozen=True)
class Route(Generic[T]):
    """Makes calls to one address. ``usual`` are values of each; ``options`` are those of ``Call``."""

    method: str
    path: str
    read: Callable[[Answer], T] = as_json
    usual: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, *names: str, **told: Any) -> Call[T]:
        gaps, values = _GAP.findall(self.path), {**self.usual, **told}
        if len(gaps) != len(names):
            raise TypeError(f"{self.path} needs {len(gaps)} names, not {len(names)}.")
        sent: Json = {"content": values.pop("content")} if "content" in values else {}
        sent |= {"query": values} if self.method == "GET" or sent else {"body": values}
        if self.method == "DELETE":
            sent = {}
        return Call(self.method, self.path, self.read, dict(zip(gaps, names)), **sent, **self.options)


def _one(kind: type[N]) -> Callable[[Answer], N]:
    return lambda answer: kind.of(answer.json())


def _many(kind: type[N]) -> Callable[[Answer], Page[N]]:
    return lambda answer: _page(answer, kind.of)


def _page(answer: Answer, make: Callable[[Json], T]) -> Page[T]:
    body = answer.json()
    return Page([make(one) for one in body["results"]], body.get("next") or "")


def _rows(answer: Answer) -> Page[Json]:
    return _page(answer, dict)


def _bytes(answer: Answer) -> bytes:
    return answer.content


def _any(answer: Answer) -> Any:
    return as_json(answer) if "json" in answer.headers.get("content-type", "json") else answer.content.decode()


def raw(method: str, path: str, body: Any = None) -> Call[Any]:
    """Return any call, as it is written; its answer is JSON or a text."""
    return Call(method, path, _any, body=body)


def of_files(method: str, files_url: str, rest: str, **more: Any) -> Call[Any]:
    """Return a call to the file server of a folder, which takes the same token."""
    return Call(method, f"{files_url}/{rest}", **{"read": as_json, "is_outside": True, **more})


_ALL = {"page_size": 100}
_UNSIGNED = {"keyed": False, "is_signed_in": False}
_S = "/sessions/{session_id}"

me: Route[Json] = Route("GET", "/me/")
limits: Route[Json] = Route("GET", "/me/limits/")
ssh_config: Route[Json] = Route("GET", "/me/ssh-config/")
begin_sign_in: Route[Json] = Route("POST", "/device/", options=_UNSIGNED)
ask_for_token: Route[Json] = Route("POST", "/device/token/", as_json, {"grant_type": _DEVICE_GRANT}, _UNSIGNED)
revoke_token: Route[Json] = Route("DELETE", "/me/token/")

sessions = Route("GET", "/sessions/", _many(Session), _ALL)
launch = Route("POST", "/sessions/", _one(Session))
preview: Route[Json] = Route("POST", "/session-preview/", options={"reads": True})
terminate: Route[Json] = Route("POST", "/sessions/terminate/")
session = Route("GET", f"{_S}/", _one(Session))
explain: Route[Json] = Route("GET", f"{_S}/explain/")
idle_checks: Route[Json] = Route("GET", f"{_S}/idle/")
extend_idle: Route[Json] = Route("POST", f"{_S}/idle/extend/")
move_end = Route("POST", f"{_S}/end-time/", _one(Session))
rename = Route("POST", f"{_S}/rename/", _one(Session))
stop: Route[Json] = Route("POST", f"{_S}/stop/")
resume = Route("POST", f"{_S}/resume/", _one(Session))
log = Route("GET", f"{_S}/logs/", _bytes)
usage: Route[Json] = Route("GET", f"{_S}/usage/", as_json, {"seconds": 120, "points": 1})
apps = Route("GET", f"{_S}/apps/", _rows)
ssh: Route[Json] = Route("GET", f"{_S}/ssh/")
ssh_key: Route[Json] = Route("POST", f"{_S}/ssh-key/")
session_entry: Route[Json] = Route("GET", f"{_S}/entry/")
session_archive = Route("GET", f"{_S}/archive/", _bytes)
session_file = Route("GET", f"{_S}/files/{{path}}", _bytes)
put_session_file: Route[Json] = Route("PUT", f"{_S}/files/{{path}}")

folders = Route("GET", "/folders/", _many(Folder), _ALL)
create_folder = Route("POST", "/folders/", _one(Folder))
delete_folder = Route("DELETE", "/folders/{folder_id}/", _one(Folder))
share_folder: Route[Json] = Route("POST", "/folders/{folder_id}/shares/")
folder_entries: Route[Json] = Route("GET", "/folders/{folder_id}/entries/")
images = Route("GET", "/images/", _many(Image), _ALL)

endpoints = Route("GET", "/endpoints/", _many(Endpoint), _ALL)
replicas = Route("GET", "/endpoints/{endpoint_id}/replicas/", _rows)
create_endpoint_token: Route[Json] = Route("POST", "/endpoints/{endpoint_id}/tokens/")
runs = Route("GET", "/runs/", _many(Run), _ALL)
run = Route("GET", "/runs/{run_id}/", _one(Run))
start_run = Route("POST", "/runs/", _one(Run))
retry_run = Route("POST", "/runs/{run_id}/retry/", _one(Run))

agents = Route("GET", "/agents/", _many(Agent), _ALL)
drain = Route("POST", "/agents/{agent_id}/drain/", _one(Agent))
cancel_drain = Route("DELETE", "/agents/{agent_id}/drain/", _one(Agent))
users = Route("GET", "/users/", _rows, _ALL)
queue = Route("GET", "/resource-groups/{group}/queue/", _rows, _ALL)
