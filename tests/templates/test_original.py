"""Templates of the original are read as ours."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backendai.base.core.errors import NotFound, UserError
from backendai.domain.templates.documents import template_document
from backendai.domain.templates.models import Template
from backendai.domain.templates.original import converted
from backendai.domain.templates.services.publishing import TemplateDraft, create_template
from tests.cast import Cast

NOW = datetime(2031, 1, 2, tzinfo=UTC)
TASK = """\
apiVersion: v1
kind: taskTemplate
metadata: {name: train, tag: example}
spec:
  sessionType: batch
  kernel:
    image: python
    architecture: x86_64
    environ: {EPOCHS: 3}
    run: {bootstrap: echo begin, startupCommand: python train.py}
    git: {repository: "https://example.org/x y.git", branch: "a'b", credential: {username: me, password: hidden-text}}
  scalingGroup: default
  mounts: {data: /data, notes: null}
  resources: {cpu: 2, mem: 4g}
"""
CLUSTER = """\
kind: cluster_template
mode: multi-node
metadata: {name: both}
spec:
  environ: {A: b}
  nodes:
  - {role: main, session_template: train}
  - {role: worker, sessionTemplate: private/train@1, replicas: 3}
"""


def made(cast: Cast, name: str, text: str) -> Template:
    return create_template(cast.alice, TemplateDraft(name), text, now=NOW)


@pytest.mark.django_db
def test_a_task_and_a_cluster_of_it_are_imported(cast: Cast) -> None:
    version = made(cast, "train", TASK).current
    document = version.document
    assert (document["image"], document["type"], document["resource_group"]) == ("python", "batch", "default")
    assert document["mounts"] == [{"folder": "data", "target": "/data"}, {"folder": "notes"}]
    assert document["params"]["git_token"]["type"] == "secret" and "hidden-text" not in version.text
    assert document["startup_command"].endswith("\necho begin\npython train.py")
    both = made(cast, "both", CLUSTER).current.document
    assert (both["cluster_mode"], both["environ"], both["type"]) == ("multi-node", {"A": "b"}, "batch")
    assert [(name, role["count"], role["resources"]) for name, role in both["roles"].items()] == [
        ("main", 1, {"cpu": 2, "mem": "4g"}),
        ("worker", 3, {"cpu": 2, "mem": "4g"}),
    ]
    assert template_document(both).parameters["git_token"].is_secret


@pytest.mark.django_db
def test_what_cannot_be_imported_is_told_with_its_place(cast: Cast) -> None:
    interactive = "kind: taskTemplate\nspec:\n  kernel: {image: x, run: {startup: id}}\n"
    with pytest.raises(UserError, match="Line 3, column 22: Only batch sessions"):
        made(cast, "x", interactive)
    made(cast, "train", TASK)
    with pytest.raises(UserError, match="one main node"):
        made(cast, "y", CLUSTER.replace("role: main", "role: head"))
    with pytest.raises(NotFound):
        made(cast, "z", CLUSTER.replace("private/train@1", "nothing"))


def test_the_command_that_fetches_a_repository_takes_no_orders_from_it(tmp_path: Path) -> None:
    def nothing(name: str) -> dict[str, str]:
        raise AssertionError(name)

    said = {
        "kind": "taskTemplate",
        "spec": {
            "type": "batch",
            "kernel": {
                "git": {"repository": f"{tmp_path}/$(touch {tmp_path}/made)", "branch": f"x; touch {tmp_path}/made"}
            },
        },
    }
    command = converted(said, nothing)["startup_command"]
    subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, check=False)
    assert not (tmp_path / "made").exists()
