"""Reads ``model-definition.yaml`` of Backend.AI: what an endpoint takes from it, and what it does not. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.written_documents import CODE, WrittenDocument, read_document

_READ = frozenset({"start_command", "port", "health_check", "shell"})
_SHELL = "/bin/bash"


@dataclass(frozen=True, slots=True)
class ModelDefinition:
    """What the first model of a definition says. ``notes``: what has no counterpart here, and what to do about it."""

    name: str
    command: str = ""
    port: int | None = None
    probe_path: str | None = None
    notes: tuple[Message, ...] = ()


def read_model_definition(text: str) -> ModelDefinition:
    """Return what the definition says. Raises UserError with line and column where it is none."""
    document = read_document(text)
    models = document.value.get("models")
    if not isinstance(models, list) or not models or not isinstance(models[0], dict):
        raise _wrong(document, "models", Message("A model definition has a list of models: write models: and - name:."))
    model = models[0]
    service = model.get("service")
    if service is None:
        service = {}
    if not isinstance(service, dict):
        raise _wrong(document, "models.0.service", Message("The service of a model has keys such as start_command."))
    return ModelDefinition(
        name=str(model.get("name") or ""),
        command=_command(document, service.get("start_command")),
        port=_port(document, service.get("port")),
        probe_path=_path(document, service.get("health_check")),
        notes=tuple(_notes(models, model, service)),
    )


def _command(document: WrittenDocument, told: Any) -> str:
    if isinstance(told, list):
        return shlex.join(map(str, told))
    if told is None or isinstance(told, str):
        return (told or "").strip()
    raise _wrong(document, "models.0.service.start_command", Message("Write a command, or a list of its words."))


def _port(document: WrittenDocument, told: Any) -> int | None:
    if told is None or (isinstance(told, int) and not isinstance(told, bool) and 1 <= told <= 65535):
        return told
    raise _wrong(document, "models.0.service.port", Message("Write a port from 1 to 65535."))


def _path(document: WrittenDocument, told: Any) -> str | None:
    if told is None:
        return None
    if isinstance(told, dict) and isinstance(told.get("path"), str):
        return str(told["path"])
    raise _wrong(document, "models.0.service.health_check", Message("The health check has a path such as /health."))


def _notes(models: list[Any], model: Mapping[str, Any], service: Mapping[str, Any]) -> list[Message]:
    notes = []
    if len(models) > 1:
        notes.append(Message("The definition has {number} models: the first is read.", number=len(models)))
    if path := model.get("model_path"):
        notes.append(Message("Mount the folder with the model files at {path}.", path=str(path)[:200]))
    if service.get("shell") not in (None, "", _SHELL):
        notes.append(
            Message("The command runs in the shell of the image, not in {shell}.", shell=str(service["shell"])[:64])
        )
    if service.get("pre_start_actions"):
        notes.append(Message("pre_start_actions are not read: write them before the command, joined with &&."))
    others = sorted(str(key) for key in service if key not in _READ | {"pre_start_actions"})
    if others:
        notes.append(Message("Not read: {keys}.", keys=", ".join(others)[:200]))
    return notes


def _wrong(document: WrittenDocument, field: str, message: Message) -> UserError:
    return document.placed(UserError(message, field=field, code=CODE))
