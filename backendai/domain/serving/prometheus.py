"""Asks the site's Prometheus for the value of a query."""

from __future__ import annotations

import json
import math
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlencode

from backendai.base.core.messages import Message

_PATIENCE = 3.0  # seconds; a query that takes longer is too dear to be asked four times a minute
_LARGEST_ANSWER = 64 * 1024


class NoValue(Exception):
    """The query has no value now; ``message`` says why."""

    def __init__(self, message: Message) -> None:
        super().__init__(str(message))
        self.message = message


def value_of(url: str, query: str) -> float:
    """Return the one number that a query results in now. Raises NoValue. Takes seconds: never in a transaction."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    address = f"{url.rstrip('/')}/api/v1/query?{urlencode({'query': query})}"
    try:
        with direct.open(address, timeout=_PATIENCE) as answer:
            text = answer.read(_LARGEST_ANSWER + 1)
    except urllib.error.HTTPError as error:
        with error:
            raise NoValue(_refusal(error.code, error.read(_LARGEST_ANSWER))) from error
    except (OSError, ValueError) as error:
        raise NoValue(Message("Prometheus does not answer.")) from error
    if len(text) > _LARGEST_ANSWER:
        raise NoValue(Message("The query has too many values: aggregate them, with sum() for example."))
    return _number(text)


def _number(text: bytes) -> float:
    try:
        data: Any = json.loads(text)["data"]
        samples = [data["result"]] if data["resultType"] == "scalar" else [one["value"] for one in data["result"]]
        numbers = [float(sample[1]) for sample in samples]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise NoValue(Message("The answer is not that of Prometheus.")) from error
    if len(numbers) > 1:
        told = Message("The query has {number} values: aggregate them, with sum() for example.", number=len(numbers))
        raise NoValue(told)
    if not numbers or not math.isfinite(numbers[0]):
        raise NoValue(Message("The query has no value now."))
    return numbers[0]


def _refusal(status: int, text: bytes) -> Message:
    try:
        said = str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return Message("Prometheus answers with status {status}.", status=status)
    return Message("Prometheus refuses the query: {said}", said="".join(one for one in said if one.isprintable())[:200])
