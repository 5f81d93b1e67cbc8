#!/usr/bin/env python
"""Every process of the platform starts here: ``manage.py <name>``."""

import os
import sys

from django.core.management import execute_from_command_line


def main() -> None:
    """Run one management command; nodes, real and simulated, get the settings without a database."""
    node = sys.argv[1:2] in (["agent"], ["simulate"])
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", f"backendai.settings.{'node' if node else 'portal'}")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
