"""Lists the image's languages: its kernelspecs, or only Python."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import sys
from typing import Any

from backendai.agent.guest import kit
from backendai.base.process.slowness import allowed

_SECONDS = 15.0
_MOST = 100
_LONGEST = 64


async def known_languages(*, by_path: bool = False) -> list[dict[str, str]]:
    """Return name and title of each language, the default first. Starts the Python that runs users' code: some 0.1
    s."""
    if kit.is_ours():
        return []
    process = await asyncio.create_subprocess_exec(
        kit.python_of_people(by_path=by_path),
        sys.argv[0],
        "list-languages",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        said, _ = await asyncio.wait_for(process.communicate(), allowed(_SECONDS))
        return [dict(one) for one in json.loads(said)]
    # Before Python 3.11 asyncio.TimeoutError is not TimeoutError.
    except (asyncio.TimeoutError, ValueError, TypeError):  # noqa: UP041
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        return []


def list_languages() -> None:
    """Print the languages as JSON."""
    sys.path[0] = ""  # ours
    try:
        specs: Any = importlib.import_module("jupyter_client.kernelspec").KernelSpecManager().get_all_specs()
    except ImportError:
        specs = {}
    found = [{"name": name[:_LONGEST], "title": _title(name, specs[name])} for name in sorted(specs, key=_rank)[:_MOST]]
    sys.stdout.write(json.dumps(found or [{"name": "python3", "title": "Python 3"}]))


def usual_of(specs: dict[str, Any]) -> str:
    """Return the name of the default language."""
    return min(specs, key=_rank)


def _rank(name: str) -> tuple[bool, str]:
    return (name != "python3", name)


def _title(name: str, spec: dict[str, Any]) -> str:
    return str(spec.get("spec", {}).get("display_name") or name)[:_LONGEST]
