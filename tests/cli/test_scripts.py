"""What the comment lines of a script mean."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from bai.config import Profile
from bai.launch_options import apply_options
from bai.scripts import array_of, command_of, mount_of, name_of, read_script

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


def read(*lines: str) -> dict[str, Any]:
    return read_script("\n".join(["#!/bin/bash", *lines]), NOW).document


def test_our_lines_are_keys_of_the_launch_document() -> None:
    found = read(
        "#BAI image: python-science",
        "#BAI cpu: 4",
        "# BAI mem: 8g",
        "#BAI gpu: 1",
        "#BAI resources.rocm.device: 2",
        "#BAI folder: data:/data:ro",
        "#BAI folder: code",
        "#BAI env.LEVEL: debug",
        '#BAI preopen_ports: [8080, 8081]',
        "#BAI time: 2h",
        "#BAI array: 0-9%4",
    )  # fmt: skip
    assert found == {
        "image": "python-science",
        "resources": {"cpu": 4, "mem": "8g", "cuda.device": 1, "rocm.device": 2},
        "mounts": [{"folder": "data", "rights": "view", "target": "/data"}, {"folder": "code"}],
        "environ": {"LEVEL": "debug"},
        "preopen_ports": [8080, 8081],
        "batch_timeout": "2h",
        "array": 10,
        "at_once": 4,
    }


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("-J train", {"name": "train"}),
        ("--job-name='my job!'  # a comment", {"name": "my-job"}),
        ("-p gpu --account=vision", {"resource_group": "gpu", "project": "vision"}),
        ("-t 90", {"batch_timeout": 5400}),
        ("--time=1-02:03:04", {"batch_timeout": 93784}),
        ("-t 2-0", {"batch_timeout": 172800}),
        ("-t 10:30", {"batch_timeout": 630}),
        ("-t 0", {}),
        ("-a 0-99%4", {"array": 100, "at_once": 4}),
        ("--array=1,3,5-9:2", {"array": [1, 3, 5, 7, 9]}),
        ("-d afterok:one:two", {"depends_on": ["one", "two"], "depends_when": "success"}),
        ("--dependency=afterany:one,afterany:two", {"depends_on": ["one", "two"], "depends_when": "any"}),
        ("--requeue", {"retry_on_agent_loss": True}),
        ("--begin=now+2hours", {"starts_at": "2026-05-04T14:00:00+00:00"}),
        ("-N 2", {"cluster_size": 2, "cluster_mode": "multi-node"}),
    ],
)
def test_lines_of_slurm_become_keys(line: str, expected: dict[str, Any]) -> None:
    found = read(f"#SBATCH {line}")
    assert {key: found[key] for key in found.keys() - {"resources", "environ"}} == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("-c 4", "--mem=16G"), {"cpu": 4, "mem": "16g"}),
        (("--mem=2000",), {"mem": "2000m"}),
        (("-c4 --mem-per-cpu=2G",), {"cpu": 4, "mem": "8g"}),
        (("-n 8 -c 2",), {"cpu": 16}),
        (("-N 2 --ntasks-per-node=4",), {"cpu": 4}),
        (("-N 2 -n 6",), {"cpu": 3}),
        (("--gres=gpu:2",), {"cuda.device": 2}),
        (("--gres=gpu:a100:4",), {"cuda.device": 4}),
        (("-G 1",), {"cuda.device": 1}),
        (("--gpus-per-node=a100:2",), {"cuda.device": 2}),
    ],
)
def test_amounts_of_slurm_are_multiplied_to_those_of_a_kernel(lines: tuple[str, ...], expected: dict[str, Any]) -> None:
    assert read(*(f"#SBATCH {line}" for line in lines))["resources"] == expected


def test_variables_of_slurm_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEED", "7")
    found = read("#SBATCH -J fit -c 2 -n 3", "#SBATCH --export=ALL,LR=0.1,SEED")
    assert found["environ"] == {
        "SLURM_JOB_NAME": "job-fit",
        "SLURM_CPUS_PER_TASK": "2",
        "SLURM_NTASKS": "3",
        "SLURM_NNODES": "1",
        "LR": "0.1",
        "SEED": "7",
    }
    command = command_of("fit.sh", "#!/bin/bash\n", ("a b",), is_slurm=True)
    assert 'SLURM_ARRAY_TASK_ID="$BACKENDAI_ARRAY_INDEX"' in command
    assert command.endswith("; exec /bin/bash ~/fit.sh 'a b'")


def test_our_lines_come_before_those_of_slurm() -> None:
    found = read_script("#SBATCH -J theirs\n#SBATCH --nonsense\n#BAI name: ours\n", NOW)
    assert (found.document, found.warnings) == ({"name": "ours"}, [])


def test_what_means_nothing_here_is_a_warning_with_its_line() -> None:
    found = read_script("#!/bin/sh\n#SBATCH --mail-type=END --qos=high\n#SBATCH -o out.txt\nmodule load cuda\n", NOW)
    assert [warning.partition(": ")[0] for warning in found.warnings] == ["line 2", "line 2", "line 3", "line 4"]
    assert "`bai logs`" in found.warnings[2] and "image" in found.warnings[3]


@pytest.mark.parametrize(
    "line", ["#SBATCH -t soon", "#SBATCH -d singleton", "#SBATCH -c", "#BAI no key", "#SBATCH --mem=x"]
)
def test_a_value_that_cannot_be_meant_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(ValueError, match=r"^line 2: "):
        read(line)


def test_options_come_before_lines_and_lines_before_the_profile() -> None:
    profile = Profile(project="usual", resource_group="usual")
    options = {"cpu": 8.0, "folder": ("mine",), "env": ("A=1",), "resource": ("tpu.device=1",), "name": None}
    lines = {
        "name": "lines",
        "project": "lines",
        "resources": {"cpu": 1, "mem": "1g"},
        "mounts": [{"folder": "theirs"}],
    }
    assert apply_options(lines, options, profile) == {
        "name": "lines",
        "project": "lines",
        "resource_group": "usual",
        "resources": {"cpu": 8, "mem": "1g", "tpu.device": "1"},
        "mounts": [{"folder": "mine"}],
        "environ": {"A": "1"},
    }
    assert lines["resources"] == {"cpu": 1, "mem": "1g"}


def test_the_interpreter_of_a_script_runs_it_from_the_home_folder() -> None:
    assert command_of("fit.py", "#!/usr/bin/env python3\n", ("--lr", "0.1"), is_slurm=False) == (
        "/usr/bin/env python3 ~/fit.py --lr 0.1"
    )
    assert command_of("a job.sh", "echo", (), is_slurm=False) == "/bin/bash ~/'a job.sh'"


def test_names_mounts_and_arrays_are_read() -> None:
    assert [name_of(one) for one in ("train.sh", "x.sh", "a b?.py", "-.sh")] == [
        "train",
        "job-x",
        "job-a-b",
        "job-script",
    ]
    assert mount_of("data/part:/mnt:rw") == {"folder": "data", "path": "part", "target": "/mnt", "rights": "edit"}
    assert array_of("3") == {"array": 3}
    for wrong in ("a-b", "1-", "", "2%x"):
        with pytest.raises(ValueError, match="is no array"):
            array_of(wrong)
    with pytest.raises(ValueError, match="is no mount"):
        mount_of("a:b:c")
