"""Fills the launch form from an earlier array, or a command with retries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.http import QueryDict

from backendai.base.core.errors import UserError
from backendai.domain.accounts.models import User
from backendai.domain.pipelines.documents.secrets import Secrets, opened_files, opened_request
from backendai.domain.pipelines.documents.stored import kept_document
from backendai.domain.pipelines.models import Run, Step
from backendai.portal.web.launch.fields.file_fields import FileRow
from backendai.portal.web.launch.fields.matrix_field import matrix_text
from backendai.portal.web.launch.refill import files_in, free_name, initial_of

LIKE_RUN = "like_run"


def run_like(query: QueryDict, actor: User) -> dict[str, Any] | None:
    """Return the form's initial values for the array in ``?like_run=``.

    None unless the array is the user's own, and the form can represent it.
    """
    step = _step_of(query.get(LIKE_RUN, ""), actor)
    if step is None or not is_of_the_form(step):
        return None
    request = _request_of(step)
    values = initial_of(request) | {"files": files_in(request)}
    values["name"] = free_name(actor, step.run.name)
    if step.values:
        values["matrix"] = _matrix_of(step)
    elif step.size > 1:
        values["array_size"] = step.size
    if times := step.retry.get("times"):
        values["retries"] = times
    return values


def files_of_run(run_id: str, actor: User) -> list[FileRow]:
    """Return the launch files of an array of the user; empty if it no longer exists."""
    step = _step_of(run_id, actor)
    return files_in(_request_of(step)) if step else []


def is_of_the_form(step: Step) -> bool:
    """Return whether the form can represent this array: its elements count from 0, or are combinations of values.

    One query.
    """
    if step.values:
        return _matrix_of(step) is not None
    last = step.tasks.order_by("-place").values_list("index", flat=True).first()
    return bool(last == step.size - 1)


def _matrix_of(step: Step) -> str | None:
    """Return the values of an array as the form's text; None if the form cannot represent them."""
    try:
        said = kept_document(step.run.text).get("matrix")
    except UserError:
        return None
    return matrix_text(said) if isinstance(said, Mapping) else None


def _step_of(run_id: str, actor: User) -> Step | None:
    own = Step.objects.filter(run__owner=actor, run__kind=Run.Kind.ARRAY).select_related("run")
    try:
        return own.filter(run=UUID(run_id)).first()
    except (ValueError, ValidationError):
        return None


def _request_of(step: Step) -> Mapping[str, Any]:
    """Return the request with its secrets and files, or without those that are no longer stored."""
    for opened in (opened_request, _with_files):
        try:
            return opened(step.request, step.secrets)
        except UserError:
            continue
    return step.request


def _with_files(request: Mapping[str, Any], secrets: Secrets) -> dict[str, Any]:
    return {**request, **opened_files(request, secrets)}
