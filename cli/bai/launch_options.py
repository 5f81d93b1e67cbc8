"""Options that make a launch document, and their order: option, then the lines of the script, then the profile."""

from __future__ import annotations

from typing import Any, Callable, TypeVar

import click

from bai.config import Profile
from bai.names import completing
from bai.scripts import Document, put

F = TypeVar("F", bound=Callable[..., Any])
_OPTIONS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (("--image",), {"help": "The image, as `bai image ls` lists them."}),
    (("--name",), {"help": "A name for the session."}),
    (("--cpu",), {"type": float, "help": "Cores of each kernel."}),
    (("--mem",), {"metavar": "SIZE", "help": "Memory of each kernel, as 512m or 8g."}),
    (("--gpu",), {"type": float, "help": "GPUs of each kernel; a fraction is a share of one."}),
    (("-r", "--resource"), {"multiple": True, "metavar": "SLOT=AMOUNT", "help": "Any other slot."}),
    (("--preset",), {"help": "A preset instead of amounts."}),
    (("--shm",), {"metavar": "SIZE", "help": "Shared memory."}),
    (
        ("-v", "--folder"),
        {
            "multiple": True,
            "metavar": "FOLDER[:TARGET][:ro]",
            "shell_complete": completing("folder"),
            "help": "Mount a folder.",
        },
    ),
    (("-e", "--env"), {"multiple": True, "metavar": "NAME=VALUE", "help": "A variable."}),
    (("--label",), {"multiple": True, "metavar": "KEY=VALUE", "help": "A label, to find the session again."}),
    (("--note",), {"help": "A note of at most 500 characters."}),
    (("--resource-group",), {"metavar": "GROUP", "help": "Where to run."}),
    (("--project",), {"help": "The project that it counts to."}),
    (("--priority",), {"type": int, "help": "0 to 100."}),
)
_MAPS = {"resource": "resources", "env": "environ", "label": "labels"}


def launch_options(function: F) -> F:
    """Give a command the options of a launch, as the one argument ``options``."""
    for names, settings in reversed(_OPTIONS):
        function = click.option(*names, **settings)(function)
    return function


def apply_options(document: Document, options: dict[str, Any], profile: Profile) -> Document:
    """Return the document with the options over it and the profile under it."""
    told = {key: value for key, value in options.items() if value is not None and value != ()}
    if told.get("folder"):
        document = {key: value for key, value in document.items() if key != "mounts"}
    document = {key: dict(value) if isinstance(value, dict) else value for key, value in document.items()}
    for key, value in told.items():
        if key in _MAPS:
            for name, _, one in (part.partition("=") for part in value):
                put(document, f"{_MAPS[key]}.{name}", one)
        elif key == "folder":
            for one in value:
                put(document, key, one)
        else:
            put(document, key, int(value) if isinstance(value, float) and value.is_integer() else value)
    for key in ("project", "resource_group"):
        if getattr(profile, key) and key not in document:
            document[key] = getattr(profile, key)
    return document
