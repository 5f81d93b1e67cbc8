"""Documents of runs as they are kept: values of secrets become parameters, which a copy of the run asks for, and
contents of files are left out, which it brings. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain, repeat
from typing import Any

from backendai.base.core.errors import UserError
from backendai.base.core.secret_names import looks_secret
from backendai.base.core.written_documents import read_document, written
from backendai.domain.pipelines.documents.document import ARRAY, FINALLY
from backendai.domain.pipelines.documents.secrets import opened_files
from backendai.domain.pipelines.models import Run
from backendai.domain.templates.rendering import is_gap
from backendai.domain.templates.saving import parameter_named_after

_PARTS = ("defaults", "steps", FINALLY)


def kept_document(text: str) -> dict[str, Any]:
    """Return a kept document of any size: requests and what is written of them are larger than texts of people may be.
    Raises UserError for what only JSON can say, as numbers of many digits."""
    return read_document(text, largest=sys.maxsize, most=sys.maxsize).value


def without_secrets(said: Any) -> Any:
    """Return the same with None for values of variables that look like secrets, but for parameters filled in later,
    and for contents of files."""
    if isinstance(said, list):
        return [without_secrets(one) for one in said]
    if not isinstance(said, Mapping):
        return said
    found: dict[str, Any] = {}
    for key, value in said.items():
        if key == "environ" and isinstance(value, Mapping):
            found[key] = {name: None if _is_secret(name, one) else one for name, one in value.items()}
        elif key == "files":
            found[key] = _with_contents(value)
        else:
            found[key] = without_secrets(value)
    return found


def with_secret_parameters(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of a pipeline with a gap for each value of a variable that looks like a secret, and its
    parameter. Null stands for such a value in documents that were kept before: it is asked for, too."""
    params = dict(said.get("params") or {})
    known: dict[tuple[str, str], str] = {}
    found = {key: _filled(one, params, known) if key in _PARTS else one for key, one in said.items()}
    return ({"params": params} if params else {}) | {key: one for key, one in found.items() if key != "params"}


def with_files(said: Mapping[str, Any], contents: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return a kept document with the contents of its files, by step and in their order. Files of all steps have those
    of a step without files of its own."""
    steps = said.get("steps") or {}
    parts = {**steps, FINALLY: said.get(FINALLY)}
    usual = next((contents[name] for name, part in parts.items() if name in contents and "files" not in part), ())
    found = {**said}
    if "files" in said:
        found["files"] = _with_contents(said["files"], contents.get(ARRAY, ()))
    if said.get("defaults"):
        found["defaults"] = _part_with_files(said["defaults"], usual)
    if said.get(FINALLY):
        found[FINALLY] = _part_with_files(said[FINALLY], contents.get(FINALLY, ()))
    if steps:
        found["steps"] = {name: _part_with_files(one, contents.get(name, ())) for name, one in steps.items()}
    return found


def _part_with_files(part: Mapping[str, Any], contents: Sequence[str]) -> dict[str, Any]:
    return {**part, "files": _with_contents(part["files"], contents)} if part.get("files") else dict(part)


def _with_contents(files: Any, contents: Sequence[str] = ()) -> Any:
    """Return files with these contents in their order, and None for those after them."""
    if not isinstance(files, list) or not all(isinstance(one, Mapping) and "path" in one for one in files):
        return files
    return [{**one, "content": content} for one, content in zip(files, chain(contents, repeat(None)), strict=False)]


def _filled(said: Any, params: dict[str, Any], known: dict[tuple[str, str], str]) -> Any:
    if isinstance(said, list):
        return [_filled(one, params, known) for one in said]
    if not isinstance(said, Mapping):
        return said
    found: dict[str, Any] = {}
    for key, value in said.items():
        if key == "environ" and isinstance(value, Mapping):
            found[key] = {name: _gap(str(name), one, params, known) for name, one in value.items()}
        elif key == "files":
            found[key] = _with_contents(value)
        else:
            found[key] = _filled(value, params, known)
    return found


def _gap(variable: str, value: Any, params: dict[str, Any], known: dict[tuple[str, str], str]) -> Any:
    """Return a gap in place of a secret: the same for the same variable and value, wherever it stands."""
    if not (looks_secret(variable) if value is None else _is_secret(variable, value)):
        return value
    key = (variable, str(value))
    if key not in known:
        name = wanted = parameter_named_after(variable)
        number = 1
        while name in params:
            number += 1
            name = f"{wanted}_{number}"
        params[name] = {"type": "secret", "title": variable}
        known[key] = name
    return f"${{{{ params.{known[key]} }}}}"


def _is_secret(name: Any, value: Any) -> bool:
    return value is not None and looks_secret(str(name), str(value)) and not is_gap(value)


def copied_text(run: Run) -> str:
    """Return the run's document with its files, and with a parameter for each secret, also where an earlier release
    kept null for it. A document that cannot be read is returned as it is: its form says why."""
    try:
        said = kept_document(run.text)
    except UserError:
        return run.text
    found = with_secret_parameters(said) if run.kind == Run.Kind.PIPELINE else said
    found = with_files(found, _files_of(run))
    return run.text if found == said else written(found)


def _files_of(run: Run) -> dict[str, list[str]]:
    """Return by step the contents of its files in their order, without those that cannot be opened any more."""
    found = {}
    for step in run.steps.filter(request__has_key="files"):
        with suppress(UserError):
            found[step.name] = [one["content"] for one in opened_files(step.request, step.secrets)["files"]]
    return found
