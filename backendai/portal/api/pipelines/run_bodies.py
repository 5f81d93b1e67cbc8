"""Bodies of requests and answers about runs of code."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from backendai.base.wire.runs import STATES
from backendai.portal.api.frame.parsing import BoundedSerializer, StrictSerializer

_LONGEST_CODE = 2**20
_NAME = r"^[A-Za-z0-9_.-]{1,64}\Z"


class BatchOptions(StrictSerializer):
    """The commands of a run in batch mode; ``*`` is the default for the files in the home folder."""

    clean = serializers.CharField(required=False, allow_blank=True, max_length=65536)
    build = serializers.CharField(required=False, allow_blank=True, max_length=65536)
    exec = serializers.CharField(required=False, allow_blank=True, max_length=65536)


class CodeRunRequest(StrictSerializer):
    """Code to run. The same ``run_id`` is the same run, so that requests can be repeated."""

    run_id = serializers.RegexField(_NAME, required=False, help_text="Your own ID; default: generated.")
    mode = serializers.ChoiceField(("query", "batch"), default="query")
    code = serializers.CharField(
        default="", allow_blank=True, trim_whitespace=False, max_length=_LONGEST_CODE, help_text="At most 1 MiB."
    )
    context = serializers.RegexField(_NAME, default="main", help_text="The name of the interpreter.")  # type: ignore[assignment]
    language = serializers.CharField(
        default="", allow_blank=True, max_length=64, help_text="The language of a new context."
    )
    options = BatchOptions(default=dict)
    timeout = serializers.FloatField(
        default=0, min_value=0, max_value=604800, help_text="Seconds until the run is interrupted; 0: no limit."
    )
    wait = serializers.FloatField(default=0, min_value=0, max_value=20, help_text="Seconds to wait for the end.")


class RunQuery(BoundedSerializer):
    """The part of a run to read."""

    after = serializers.IntegerField(
        default=0, min_value=0, max_value=2**53, help_text="The offset of the last answer."
    )
    wait = serializers.FloatField(default=0, min_value=0, max_value=20, help_text="Seconds to wait for something new.")
    state = serializers.ChoiceField(STATES, required=False, help_text="The state of the last answer: another is new.")


class RunsQuery(BoundedSerializer):
    """The runs to list."""

    before = serializers.IntegerField(
        required=False, min_value=1, help_text="The number ``before`` of the last answer."
    )
    limit = serializers.IntegerField(default=200, min_value=1, max_value=200)


class RunInput(StrictSerializer):
    """The input for a run that waits for it."""

    text = serializers.CharField(allow_blank=True, trim_whitespace=False, max_length=65536)


class ContextRequest(StrictSerializer):
    """A context and its language, the name of a kernelspec of the image."""

    name = serializers.RegexField(_NAME)
    language = serializers.CharField(default="", allow_blank=True, max_length=64)


class ContextEnd(serializers.Serializer[Any]):
    """Whether deleting a context also deletes its runs."""

    runs = serializers.BooleanField(default=False, help_text="Its runs and their output as well.")


class CompletionRequest(StrictSerializer):
    """Code and cursor for completions."""

    code = serializers.CharField(allow_blank=True, trim_whitespace=False, max_length=_LONGEST_CODE)
    cursor = serializers.IntegerField(required=False, min_value=0, help_text="In characters; default: the end.")
    context = serializers.RegexField(_NAME, default="main")  # type: ignore[assignment]
    language = serializers.CharField(default="", allow_blank=True, max_length=64)


class ExecuteRequest(serializers.Serializer[Any]):
    """The body of the execution call of the original Backend.AI."""

    mode = serializers.ChoiceField(("query", "batch", "continue", "input", "complete", "interrupt"), default="query")
    code = serializers.CharField(default="", allow_blank=True, trim_whitespace=False, max_length=_LONGEST_CODE)
    runId = serializers.RegexField(_NAME, required=False, allow_null=True)
    options = serializers.DictField(default=dict, allow_empty=True)


class RunBody(serializers.Serializer[Any]):
    """The state of a run with its output."""

    run_id = serializers.CharField()
    context = serializers.CharField()  # type: ignore[assignment]
    mode = serializers.CharField()
    language = serializers.CharField(help_text="The name of the kernelspec that was asked for.")
    state = serializers.CharField(help_text="QUEUED, STARTING, CLEANING, BUILDING, RUNNING, WAITING_INPUT, …")
    exit_code = serializers.IntegerField(allow_null=True)
    reason = serializers.CharField(help_text="Why the run ended, if not by itself.")
    prompt = serializers.CharField(allow_null=True, help_text="The prompt, while the run waits for input.")
    password = serializers.BooleanField(allow_null=True)
    items = serializers.ListField(
        child=serializers.DictField(), help_text="stdout, stderr, media, html, error, log, gap"
    )
    offset = serializers.IntegerField(help_text="The offset for the next read: ?after=OFFSET")
    end = serializers.IntegerField(help_text="The offset of the newest item.")
    queue_position = serializers.IntegerField()
