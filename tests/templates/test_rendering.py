"""From a template to a request: gaps, layers, sources, locks. No database."""

from __future__ import annotations

from typing import Any

import pytest

from backendai.base.core.errors import UserError
from backendai.domain.templates.documents import template_document
from backendai.domain.templates.kinds import kind_of
from backendai.domain.templates.parameters import parameters_of, values_of
from backendai.domain.templates.rendering import Layer, Rendered, Source, check_locks, filled_in, merged

DOCUMENT: dict[str, Any] = {
    "params": {
        "lr": {"type": "number", "default": 0.1, "min": 0.001, "max": 1},
        "data": {"type": "folder"},
        "hf_token": {"type": "secret"},
    },
    "image": "python",
    "type": "batch",
    "startup_command": 'python train.py --lr "$PARAM_LR"',
    "resources": {"cpu": 2, "mem": "4g"},
    "environ": {"EPOCHS": 3, "RUN": "lr-${{ params.lr }}", "HF_TOKEN": "${{ params.hf_token }}"},
    "mounts": [{"folder": "${{ params.data }}", "target": "/data"}],
    "locked": ["image", "resources.cpu"],
}


def rendered(given: dict[str, Any], said: dict[str, Any] | None = None, *, secrets: bool = True) -> Rendered:
    parts = template_document(DOCUMENT)
    values = values_of(parts.parameters, given, secrets=secrets)
    layers = filled_in(parts.session, values, "private/train@3", parts.parameters)
    base = merged(layers).document
    made = merged([*layers, Layer(Source("caller"), said or {}, {})])
    check_locks(parts.locked, base, made.document, "private/train@3")
    return made


def test_gaps_are_filled_and_commands_read_variables() -> None:
    made = rendered({"lr": 0.5, "data": "mnist", "hf_token": "hf_'\"$(x)\n"})
    assert made.document["startup_command"] == DOCUMENT["startup_command"], "nothing is written into a command"
    assert made.document["mounts"] == [{"folder": "mnist", "target": "/data"}]
    assert made.document["environ"] == {
        "EPOCHS": "3",
        "RUN": "lr-0.5",
        "HF_TOKEN": "hf_'\"$(x)\n",
        "PARAM_LR": "0.5",
        "PARAM_DATA": "mnist",
        "PARAM_HF_TOKEN": "hf_'\"$(x)\n",
    }


def test_each_field_says_where_it_comes_from() -> None:
    made = rendered({"data": "mnist", "hf_token": "x"}, {"name": "night", "environ": {"RUN": "mine", "EPOCHS": None}})
    said = {path: (one.kind, one.name) for path, one in made.sources.items()}
    assert said["image"] == ("template", "private/train@3")
    assert said["environ.HF_TOKEN"] == ("parameter", "hf_token") and said["environ.PARAM_LR"] == ("parameter", "lr")
    assert said["mounts.0.folder"] == ("parameter", "data") and said["name"] == ("caller", "")
    assert said["environ.RUN"] == ("caller", "") and "environ.EPOCHS" not in said
    assert "EPOCHS" not in made.document["environ"], "null removes"


def test_maps_merge_by_key_and_lists_are_replaced() -> None:
    made = rendered({"data": "a", "hf_token": "x"}, {"resources": {"cuda.shares": 0.5}, "mounts": [{"folder": "b"}]})
    assert made.document["resources"] == {"cpu": 2, "mem": "4g", "cuda.shares": 0.5}
    assert made.document["mounts"] == [{"folder": "b"}] and "mounts.0.folder" not in made.sources


@pytest.mark.parametrize(
    "said", [{"image": "other"}, {"resources": {"cpu": 3}}, {"image": None}, {"resources": None}, {"resources": "x"}]
)
def test_what_is_locked_stays(said: dict[str, Any]) -> None:
    with pytest.raises(UserError) as refusal:
        rendered({"data": "a", "hf_token": "x"}, said)
    assert refusal.value.code == "locked-by-template"
    assert rendered({"data": "a", "hf_token": "x"}, {"image": "python", "resources": {"cpu": "2.0"}}), (
        "the same is fine"
    )


def test_a_secret_that_is_not_given_waits_where_it_belongs() -> None:
    environ = rendered({"data": "a"}, secrets=False).document["environ"]
    assert (environ["HF_TOKEN"], environ["PARAM_HF_TOKEN"]) == (None, None)
    with pytest.raises(UserError) as refusal:
        rendered({"data": "a"})
    assert (refusal.value.code, refusal.value.field) == ("missing-parameter", "parameters.hf_token")


TYPED: dict[str, Any] = {
    "steps": {"type": "integer", "min": 2, "max": 10, "step": 4, "default": 2},
    "rate": {"type": "number", "default": 1},
    "fast": {"type": "boolean", "default": False},
    "model": {"type": "choice", "choices": ["small", 7], "default": "small"},
    "memory": {"type": "size", "min": "1g", "max": "2g", "default": "1g"},
    "limit": {"type": "duration", "max": "2h", "default": "15m"},
    "place": {"type": "text", "format": "url", "default": ""},
    "depth": {"type": "integer", "show_if": {"fast": True}},
}


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        ({"steps": "6"}, "steps", 6),
        ({"rate": "1e-3"}, "rate", 0.001),
        ({"fast": "on", "depth": 1}, "fast", True),
        ({"model": 7}, "model", "7"),
        ({"memory": "1.5g"}, "memory", "1.5g"),
        ({"limit": "2h"}, "limit", 7200),
        ({}, "limit", 900),
        ({"place": "https://example.com/a"}, "place", "https://example.com/a"),
        ({}, "depth", ""),
        ({"fast": True, "depth": "3"}, "depth", 3),
    ],
)
def test_answers_have_the_type_of_their_parameter(given: dict[str, Any], name: str, value: Any) -> None:
    assert values_of(parameters_of(TYPED), given)[name] == value


@pytest.mark.parametrize(
    "given",
    [
        {"steps": 1},
        {"steps": 11},
        {"steps": 4},
        {"steps": "2.5"},
        {"steps": True},
        {"rate": "nan"},
        {"rate": "inf"},
        {"rate": []},
        {"fast": "maybe"},
        {"model": "large"},
        {"memory": "3g"},
        {"memory": "lots"},
        {"limit": "3h"},
        {"limit": "1y"},
        {"place": "javascript:alert(1)"},
        {"fast": True},
        {"stps": 1},
    ],
)
def test_other_answers_are_refused_by_name(given: dict[str, Any]) -> None:
    with pytest.raises(UserError) as refusal:
        values_of(parameters_of(TYPED), given)
    assert (refusal.value.field or "").startswith("parameters.")


@pytest.mark.parametrize(
    ("document", "field", "said"),
    [
        ({"image": "x", "imge": 1}, "imge", "use image"),
        ({"image": "x", "owner": "a@b.c"}, "owner", "single launch"),
        ({"version": 9}, "version", "Version 9"),
        ({"image": "${{ params.img }}"}, "image", "Unknown parameter img"),
        ({"image": "${{ secrets.x }}"}, "", "is not known"),
        ({"image": "${{ params.x "}, "", "not closed"),
        ({"environ": {"${{ params.a }}": "x"}}, "environ.${{ params.a }}", "key has no gaps"),
        ({"params": {"a": {}}, "startup_command": "run ${{ params.a }}"}, "startup_command", '"$PARAM_A"'),
        ({"params": {"a": {"typ": "text"}}}, "params.a.typ", "use type"),
        ({"params": {"A": {}}}, "params.A", "a–z"),
        ({"params": {"a": {"type": "money"}}}, "params.a.type", "Unknown type 'money'"),
        ({"params": {"a": {"type": "integer", "default": "x"}}}, "params.a.default", "whole number"),
        ({"params": {"a": {"type": "secret"}}}, "params.a", "_token"),
        ({"params": {"a": {"show_if": {"b": 1}}}}, "params.a.show_if", "Parameter 'b' not found"),
        ({"params": {"a": {"type": "choice"}}}, "params.a.choices", "choices"),
        ({"environ": {"API_KEY": "abc"}}, "environ.API_KEY", "type secret"),
        ({"environ": {"LD_PRELOAD": "abc"}}, "environ.LD_PRELOAD", "is reserved"),
        ({"locked": ["imge"]}, "locked.0", "use image"),
        ({"resources": {"cpu": "many"}}, "resources.cpu", "number"),
        ({"roles": {"worker": {"cout": 1}}}, "roles.worker.cout", "use count"),
        ({"roles": {"main": {"count": 2}}}, "roles.main.count", "one main"),
        ({"cluster_size": "x"}, "cluster_size", "cannot be read"),
    ],
)
def test_documents_that_no_launch_could_use_are_refused(document: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(UserError) as refusal:
        template_document(document)
    assert (refusal.value.field or "") == field and said in str(refusal.value)


def test_a_kind_that_there_is_not_is_refused() -> None:
    with pytest.raises(UserError, match="one of these kinds: session, pipeline") as refusal:
        kind_of({"kind": "job"})
    assert refusal.value.field == "kind"
    assert kind_of({"steps": {}}).name == "pipeline" and kind_of({"image": "x"}).name == "session"
