"""Log lines as JSON, for programs that collect them."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

_FACTS = ("request_id", "user_id", "session_id", "agent")  # of a record, where they are known
_of_process: dict[str, str] = {}


def note_of_process(**facts: str) -> None:
    """Add facts to all later lines of this process."""
    _of_process.update(facts)


class JsonLines(logging.Formatter):
    """Formats each record as one line: time, level, logger, message, and what is known of its cause."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its newline."""
        told = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_of_process,
        }
        told |= {name: str(fact) for name in _FACTS if (fact := getattr(record, name, ""))}
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False)
