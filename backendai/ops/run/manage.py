"""``backendai NAME`` of the installed package, and ``manage.py NAME`` of a clone: runs one management command."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from django.core.management import execute_from_command_line

from backendai.base.paths.installation import IMPORT_PATH

_NODE_COMMANDS = {"agent"}
_WITHOUT_DATABASE = _NODE_COMMANDS | {"file_server"}


def main() -> None:
    """Run one management command; agents and file servers get the settings without a database."""
    if sys.argv[1:2] == ["up"]:
        become_supervisor(sys.argv[2:])
    words = [word for word in sys.argv[1:3] if word not in ("help", "--help", "-h")]
    node = bool(_WITHOUT_DATABASE.intersection(words[:1]))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", f"backendai.settings.{'node' if node else 'portal'}")
    execute_from_command_line(sys.argv)
    if not words:  # what Django lists comes from the portal's settings
        print("\n[agent]", *(f"    {name}" for name in sorted(_NODE_COMMANDS)), sep="\n")  # noqa: T201


def become_supervisor(arguments: Sequence[str]) -> NoReturn:
    """Replace this process with the supervisor of ``up``, which loads neither Django nor settings of one process."""
    os.environ.update({"PYTHONSAFEPATH": "1", **IMPORT_PATH})  # nothing is imported from the current folder
    os.environ.pop("DJANGO_SETTINGS_MODULE", None)
    os.execv(sys.executable, [sys.executable, "-m", "backendai.ops.run.up", *arguments])  # noqa: S606


if __name__ == "__main__":
    main()
