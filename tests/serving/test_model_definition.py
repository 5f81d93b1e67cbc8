"""Reading model-definition.yaml."""

from __future__ import annotations

import pytest

from backendai.base.core.errors import UserError
from backendai.domain.serving.model_definition import read_model_definition

WHOLE = """
models:
  - name: "Llama 3.1"
    model_path: /models/llama
    service:
      pre_start_actions:
        - action: run_command
          args: {command: [echo, hello]}
      start_command: [python, -m, vllm, --model, "/models/my llama"]
      port: 9000
      health_check: {path: /healthz, max_retries: 5}
  - name: second
"""
WRONG = [
    ("models: {}", "models", "Line 1"),
    ("{}", "models", "models"),
    ("models:\n- name: a\n  service: {port: 0}", "models.0.service.port", "Line 3"),
    ("models:\n- name: a\n  service: {port: yes}", "models.0.service.port", "Line 3"),
    ("models:\n- service: {start_command: {a: 1}}", "models.0.service.start_command", "Line 2"),
    ("models:\n- service: {health_check: /health}", "models.0.service.health_check", "Line 2"),
    ("models:\n- service: 7", "models.0.service", "Line 2"),
    ("models: [", None, "neither YAML"),
    ("", None, "empty"),
]


def test_a_whole_definition_is_read_and_what_has_no_counterpart_is_said() -> None:
    found = read_model_definition(WHOLE)
    assert (found.name, found.port, found.probe_path) == ("Llama 3.1", 9000, "/healthz")
    assert found.command == "python -m vllm --model '/models/my llama'"
    notes = " ".join(found.notes)
    assert all(part in notes for part in ("2 models", "/models/llama", "pre_start_actions"))


def test_what_is_left_out_stays_open() -> None:
    found = read_model_definition("models:\n- name: small\n  service: {start_command: serve, previous: 1}")
    assert (found.command, found.port, found.probe_path) == ("serve", None, None)
    assert "previous" in found.notes[0]


@pytest.mark.parametrize(("text", "field", "said"), WRONG)
def test_what_is_wrong_is_said_with_its_place(text: str, field: str | None, said: str) -> None:
    with pytest.raises(UserError) as caught:
        read_model_definition(text)
    assert said in caught.value.message
    if field:
        assert caught.value.field == field
