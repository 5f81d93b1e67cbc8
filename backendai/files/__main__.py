"""``python -m backendai.files``: the file server without Django, as ``bin/up`` starts it."""

import logging
import os
import sys
from argparse import ArgumentParser

from backendai.base.core.errors import UserError
from backendai.base.process.json_logs import JsonLines
from backendai.base.process.telemetry import report_faults
from backendai.files.process import add_arguments, run

_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def main() -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code."""
    level = (os.environ.get("BACKENDAI_LOG_LEVEL") or "INFO").upper()
    is_json = os.environ.get("BACKENDAI_LOG_FORMAT", "").lower() == "json"
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if is_json else logging.Formatter(_LINE))
    logging.basicConfig(level=level if level in _LEVELS else "INFO", handlers=[handler])
    report_faults(os.environ.get("BACKENDAI_SENTRY_DSN", ""))
    parser = ArgumentParser(prog="python -m backendai.files", description="Serve the files of folders.")
    add_arguments(parser)
    try:
        run(vars(parser.parse_args()), os.environ)
    except UserError as error:
        print(f"ERROR: {error.message}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
