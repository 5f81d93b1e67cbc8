#!/usr/bin/env python
"""Every process of the platform starts here: ``manage.py <name>``."""

import os
import sys

from django.core.management import execute_from_command_line

NODE_COMMANDS = {"agent", "simulate"}
FILE_COMMANDS = {"file_server"}


def main() -> None:
    """Run one management command; nodes, real and simulated, get the settings without a database."""
    words = [word for word in sys.argv[1:3] if word not in ("help", "--help", "-h")]
    node = bool((NODE_COMMANDS | FILE_COMMANDS).intersection(words[:1]))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", f"backendai.settings.{'node' if node else 'portal'}")
    execute_from_command_line(sys.argv)
    if not words:  # what Django lists comes from the portal's settings
        print("\n[agent]", *(f"    {name}" for name in sorted(NODE_COMMANDS)), sep="\n")  # noqa: T201


if __name__ == "__main__":
    main()
