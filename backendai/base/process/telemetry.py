"""Faults to Sentry and traces to an OpenTelemetry collector, for sites that ask for them.

The packages are optional (``requirements-telemetry.in``); nothing is loaded without a setting.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from backendai.base.core.version import VERSION

_SENTRY, _COLLECTOR = "BACKENDAI_SENTRY_DSN", "BACKENDAI_OTLP_ENDPOINT"
_INSTALL = "its packages are missing; install them: bin/install requirements-telemetry.txt"


class WrongTelemetry(SystemExit):
    """Not an ordinary exception, like a wrong setting: the process ends with the sentence."""

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(f"ERROR: {setting} is set, but {problem}.")


def report_faults(dsn: str) -> None:
    """Send what is logged as an error to Sentry: without people, bodies and values of variables.

    Starts no thread before the first fault, so a process may fork after it. Raises WrongTelemetry.
    """
    if not dsn:
        return
    sentry = _load("sentry_sdk", _SENTRY)
    try:
        sentry.init(
            dsn,
            release=VERSION,
            auto_session_tracking=False,
            send_default_pii=False,
            include_local_variables=False,
            max_request_body_size="never",
            before_send=_without_query,
        )
    except ValueError:
        raise WrongTelemetry(_SENTRY, "it is no DSN: copy it from Sentry, as https://KEY@HOST/PROJECT") from None


def _without_query(event: Any, _hint: Any) -> Any:
    for part in ("query_string", "cookies", "headers", "env"):
        event.get("request", {}).pop(part, None)
    return event


def send_traces(collector: str, part: str, kinds: Sequence[str]) -> None:
    """Send spans of these kinds of calls to the collector (its address without ``/v1/traces``).

    A kind is a library that OpenTelemetry knows. Variables named ``OTEL_…`` set the rest, such as headers and sampling.
    Raises WrongTelemetry.
    """
    if not collector:
        return
    address = urlsplit(collector)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise WrongTelemetry(_COLLECTOR, "it is not a web address such as http://127.0.0.1:4318")
    trace, sdk, resources = (
        _load(f"opentelemetry.{name}", _COLLECTOR) for name in ("trace", "sdk.trace", "sdk.resources")
    )
    resource = resources.Resource.create({"service.name": part, "service.version": VERSION})
    provider = sdk.TracerProvider(resource=resource)
    provider.add_span_processor(_exporting(sdk.SpanProcessor, collector))
    trace.set_tracer_provider(provider)
    for kind in kinds:
        module = _load(f"opentelemetry.instrumentation.{kind}", _COLLECTOR)
        getattr(module, f"{kind.capitalize()}Instrumentor")().instrument()


def _exporting(base: type[Any], collector: str) -> Any:
    export = _load("opentelemetry.sdk.trace.export", _COLLECTOR)
    otlp = _load("opentelemetry.exporter.otlp.proto.http.trace_exporter", _COLLECTOR)

    class Exporting(base):
        """Has a batch of its own in each process: its thread would not survive a fork."""

        def __init__(self) -> None:
            self.batches: dict[int, Any] = {}

        def on_end(self, span: Any) -> None:
            process = os.getpid()
            if process not in self.batches:
                exporter = otlp.OTLPSpanExporter(endpoint=f"{collector}/v1/traces")
                self.batches = {process: export.BatchSpanProcessor(exporter)}
            self.batches[process].on_end(span)

        def shutdown(self) -> None:
            if batch := self.batches.get(os.getpid()):
                batch.shutdown()

    return Exporting()


def _load(name: str, setting: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise WrongTelemetry(setting, _INSTALL) from None
