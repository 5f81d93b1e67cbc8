"""docs/how-to/command.md: its examples work as they stand there, and its list of commands is whole."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from bai.__main__ import run
from tests.cli.conftest import Person

MANUAL = (Path(__file__).resolve().parents[2] / "docs/how-to/command.md").read_text()
EXAMPLES = re.findall(r"```sh\n(.*?)```", MANUAL, re.DOTALL)
SCRIPT = re.findall(r"```\n(#!/bin/bash\n#BAI.*?)```", MANUAL, re.DOTALL)
PIPELINE = """
kind: pipeline
defaults: {image: python, resources: {cpu: 0.5, mem: 128m}}
steps:
  prepare: {startup_command: echo prepared}
  report: {after: [prepare], startup_command: echo reported}
"""
SWEEP = """#!/bin/bash
#SBATCH --cpus-per-task=1 --mem=128M
test "$SLURM_ARRAY_TASK_ID" = "$BACKENDAI_ARRAY_INDEX" && test -n "$SLURM_JOB_ID"
"""


def test_it_lists_every_command_as_the_command_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "--markdown"]) == 0
    listed = capsys.readouterr().out
    assert listed in MANUAL, "bai help --markdown"
    assert run(["--help"]) == 0
    names = re.findall(r"^  ([a-z][a-z-]*)  ", capsys.readouterr().out.partition("Commands:")[2], re.MULTILINE)
    assert len(names) > 25 and all(f"| `bai {name}" in listed for name in names)


def test_it_is_short_and_has_twenty_examples() -> None:
    assert MANUAL.count("\n") <= 155
    assert sum(len(block.splitlines()) for block in EXAMPLES) >= 20


@pytest.mark.system
@pytest.mark.timeout(400)
def test_its_examples_work_one_after_the_other(person: Person) -> None:
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    (person.work / "data").mkdir()
    (person.work / "data/part.csv").write_text("1\n2\n")
    (person.work / "data.csv").write_text("a\nb\nc\n")
    (person.work / "train.py").write_text("import sys\nprint('epochs', sys.argv[2])\n")
    (person.work / "job.sh").write_text(SCRIPT[0])
    (person.work / "sweep.sh").write_text(SWEEP)
    (person.work / "pipeline.yaml").write_text(PIPELINE)
    done = person.run("bash", "-euxo", "pipefail", "-c", "\n".join(EXAMPLES))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    for expected in (
        "42\n",
        "epochs 3\n",
        "3 data.csv",
        "2 /home/work/corpus/data/part.csv",
        "2 succeeded",
        "part.csv",
    ):
        assert expected in done.stdout
    assert (person.work / "copy.csv").read_text() == "a\nb\nc\n"
