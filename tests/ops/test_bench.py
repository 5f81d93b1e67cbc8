"""Benchmarks are found by their names."""

from __future__ import annotations

import subprocess
from pathlib import Path

BENCH = Path(__file__).parents[2] / "bin" / "bench"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BENCH, *arguments], capture_output=True, text=True, timeout=170)


def test_a_benchmark_may_bear_the_name_of_a_package_that_it_needs() -> None:
    answer = run("redis", "--help")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("usage: bin/bench redis")


def test_it_refuses_a_name_that_is_none_and_lists_those_that_are() -> None:
    answer = run("nothing")
    assert answer.returncode == 2
    assert {"decide", "fleet", "lists", "passes", "redis", "slurm", "start"} <= set(answer.stderr.split())
