"""Bodies of requests about runs of code."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from backendai.api.parsing import StrictSerializer
from backendai.wire.runs import STATES

_LONGEST_CODE = 2**20
_NAME = r"^[A-Za-z0-9_.-]{1,64}\Z"


class BatchOptions(StrictSerializer):
    """The commands of a run in batch mode; ``*`` is the usual one of the files in the home folder."""

    clean = serializers.CharField(required=False, allow_blank=True, max_length=65536)
    build = serializers.CharField(required=False, allow_blank=True, max_length=65536)
    exec = serializers.CharField(required=False, allow_blank=True, max_length=65536)


class RunWish(StrictSerializer):
    """Code to run. The same ``run_id`` again is the same run, so that a request may be repeated."""

    run_id = serializers.RegexField(_NAME, required=False, help_text="Chosen by you, or made up.")
    mode = serializers.ChoiceField(("query", "batch"), default="query")
    code = serializers.CharField(
        default="", allow_blank=True, trim_whitespace=False, max_length=_LONGEST_CODE, help_text="1 MiB at most."
    )
    context = serializers.RegexField(_NAME, default="main", help_text="The interpreter that runs it, by its name.")  # type: ignore[assignment]
    language = serializers.CharField(default="", allow_blank=True, max_length=64, help_text="Of a context that is new.")
    options = BatchOptions(default=dict)
    timeout = serializers.FloatField(
        default=0, min_value=0, max_value=604800, help_text="Seconds after which it is interrupted; 0: none."
    )
    wait = serializers.FloatField(default=0, min_value=0, max_value=20, help_text="Seconds to wait for its end.")


class RunQuery(serializers.Serializer[Any]):
    """Which part of a run is read."""

    after = serializers.IntegerField(default=0, min_value=0, help_text="The offset of the last answer.")
    wait = serializers.FloatField(default=0, min_value=0, max_value=20, help_text="Seconds to wait for something new.")
    state = serializers.ChoiceField(STATES, required=False, help_text="The state of the last answer: another is new.")


class RunsQuery(serializers.Serializer[Any]):
    """Which runs are listed."""

    before = serializers.IntegerField(
        required=False, min_value=1, help_text="The number ``before`` of the last answer."
    )
    limit = serializers.IntegerField(default=200, min_value=1, max_value=200)


class RunInput(StrictSerializer):
    """The answer to a run that asks."""

    text = serializers.CharField(allow_blank=True, trim_whitespace=False, max_length=65536)


class ContextWish(StrictSerializer):
    """A context and its language, which is the name of a kernelspec of the image."""

    name = serializers.RegexField(_NAME)
    language = serializers.CharField(default="", allow_blank=True, max_length=64)


class ContextEnd(serializers.Serializer[Any]):
    """What is deleted with a context."""

    runs = serializers.BooleanField(default=False, help_text="Its runs and their output as well.")


class CompletionWish(StrictSerializer):
    """Where completions are wanted."""

    code = serializers.CharField(allow_blank=True, trim_whitespace=False, max_length=_LONGEST_CODE)
    cursor = serializers.IntegerField(required=False, min_value=0, help_text="In characters; the end if left out.")
    context = serializers.RegexField(_NAME, default="main")  # type: ignore[assignment]
    language = serializers.CharField(default="", allow_blank=True, max_length=64)


class ExecuteWish(serializers.Serializer[Any]):
    """The body of the original's execution call."""

    mode = serializers.ChoiceField(("query", "batch", "continue", "input", "complete", "interrupt"), default="query")
    code = serializers.CharField(default="", allow_blank=True, trim_whitespace=False, max_length=_LONGEST_CODE)
    runId = serializers.RegexField(_NAME, required=False, allow_null=True)
    options = serializers.DictField(default=dict, allow_empty=True)


class RunBody(serializers.Serializer[Any]):
    """How far a run is."""

    run_id = serializers.CharField()
    context = serializers.CharField()  # type: ignore[assignment]
    mode = serializers.CharField()
    language = serializers.CharField(help_text="The name of the kernelspec that was asked for.")
    state = serializers.CharField(help_text="QUEUED, STARTING, CLEANING, BUILDING, RUNNING, WAITING_INPUT, …")
    exit_code = serializers.IntegerField(allow_null=True)
    reason = serializers.CharField(help_text="Why it ended as it did, if not by itself.")
    prompt = serializers.CharField(allow_null=True, help_text="What it asks, while it waits for input.")
    password = serializers.BooleanField(allow_null=True)
    items = serializers.ListField(
        child=serializers.DictField(), help_text="stdout, stderr, media, html, error, log, gap"
    )
    offset = serializers.IntegerField(help_text="Where to read on: ?after=OFFSET")
    end = serializers.IntegerField(help_text="The offset of the newest item.")
    queue_position = serializers.IntegerField()
