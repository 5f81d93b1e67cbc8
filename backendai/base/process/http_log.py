"""The log of aiohttp's servers."""

from __future__ import annotations

import logging

from aiohttp.http_exceptions import HttpProcessingError


def http_logger(server: str) -> logging.Logger:
    """Return the logger for the requests of the server with this module name."""
    logger = logging.getLogger(f"{server}.http")
    logger.addFilter(_no_bad_requests)
    return logger


def _no_bad_requests(record: logging.LogRecord) -> bool:
    """Return whether a record is none of a malformed request, which is answered with 400.

    Anybody can send them, and they would fill the log: 1 MiB of the byte 255 was 4 MiB of it.
    """
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))
