"""Documents of runs as they are kept: values of secrets become parameters, which a copy of the run asks for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backendai.core.secret_names import looks_secret
from backendai.pipelines.documents import FINALLY
from backendai.templates.rendering import is_gap
from backendai.templates.saving import parameter_named_after

_PARTS = ("defaults", "steps", FINALLY)


def without_secrets(said: Any) -> Any:
    """Return the same with None for values of variables that look like secrets, but for parameters filled in later."""
    if isinstance(said, list):
        return [without_secrets(one) for one in said]
    if not isinstance(said, Mapping):
        return said
    found: dict[str, Any] = {}
    for key, value in said.items():
        if key == "environ" and isinstance(value, Mapping):
            found[key] = {name: None if _is_secret(name, one) else one for name, one in value.items()}
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


def _filled(said: Any, params: dict[str, Any], known: dict[tuple[str, str], str]) -> Any:
    if isinstance(said, list):
        return [_filled(one, params, known) for one in said]
    if not isinstance(said, Mapping):
        return said
    found: dict[str, Any] = {}
    for key, value in said.items():
        if key == "environ" and isinstance(value, Mapping):
            found[key] = {name: _gap(str(name), one, params, known) for name, one in value.items()}
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
