"""The command of the portal, and its SDK: ``from bai import Client, api``. Each name is loaded when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

VERSION = "1.0.0"  # the platform's, which a test compares

_WHERE = {"AsyncClient": "async_client", "Client": "client", "api": "", "Problem": "call", "Unreachable": "call"}
_WHERE |= dict.fromkeys(("Agent", "Endpoint", "Folder", "Image", "Run", "Session"), "nouns")


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"bai has no {name}")
    return import_module("bai.sdk.api") if name == "api" else getattr(import_module(f"bai.sdk.{_WHERE[name]}"), name)
