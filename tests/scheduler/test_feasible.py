"""Gates and filters: each says in numbers why it is closed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from backendai.core.slots import Slots
from backendai.scheduler.feasible import closed_gate, why_not
from backendai.scheduler.snapshot import ImageBuild
from tests.scheduler.worlds import NOW, a_session, an_agent

ONE_CORE = Slots.parse({"cpu": 1})


def gate_reason(**changes):
    closed = closed_gate(a_session(**changes), NOW)
    return closed and closed[1]


def test_it_finds_nothing_against_an_agent_that_fits():
    assert why_not(an_agent(), ONE_CORE, 1, "x86_64") is None


def test_it_takes_any_agent_when_no_architecture_is_asked():
    assert why_not(an_agent(architecture="aarch64"), ONE_CORE, 1, "") is None


@pytest.mark.parametrize(
    ("agent", "code", "sentence"),
    [
        (an_agent(alive=False), "no-agent-alive", "Agent gpu-01 does not answer."),
        (
            an_agent(schedulable=False),
            "no-agent-schedulable",
            "Agent gpu-01 takes no new sessions: an administrator paused it.",
        ),
        (
            an_agent(architecture="aarch64"),
            "no-agent-with-architecture",
            "Agent gpu-01 is aarch64; the image needs x86_64.",
        ),
        (
            an_agent(kernels=3, max_kernels=4),
            "too-many-kernels",
            "Agent gpu-01 runs 3 kernels of at most 4; 2 more asked.",
        ),
        (
            an_agent(used={"cpu": "7.5", "mem": "31.5g"}),
            "insufficient-resources",
            "Agent gpu-01 lacks cpu: 1 asked, 0.5 available; mem: 1 GiB asked, 512 MiB available.",
        ),
    ],
)
def test_it_says_what_keeps_an_agent_from_taking_it(agent, code, sentence):
    reason = why_not(agent, Slots.parse({"cpu": 1, "mem": "1g"}), 2, "x86_64")
    assert (reason.code, reason.message) == (code, sentence)


def test_it_counts_the_kernels_that_come_and_not_only_those_that_run():
    assert why_not(an_agent(kernels=3, max_kernels=4), ONE_CORE, 1, "") is None
    assert why_not(an_agent(kernels=3, max_kernels=4), ONE_CORE, 2, "").code == "too-many-kernels"


def test_it_gives_shortages_as_exact_decimal_strings():
    reason = why_not(an_agent(used={"cpu": "7.5"}), ONE_CORE, 1, "x86_64")
    assert reason.details == {"agent": "gpu-01", "shortages": [{"slot": "cpu", "wanted": "1", "free": "0.5"}]}


def test_it_says_until_when_a_start_time_keeps_a_session_waiting():
    starts_at = NOW + timedelta(minutes=90)
    reason = gate_reason(starts_at=starts_at)
    assert (reason.code, reason.until, reason.never) == ("start-time-not-reached", starts_at, False)
    assert reason.message == "Asked to start at 2025-06-02 10:30:00 UTC."


def test_it_opens_the_gate_when_the_start_time_is_reached():
    assert gate_reason(starts_at=NOW) is None


def test_it_says_how_far_an_image_is():
    reason = gate_reason(image="torch:2", image_build=ImageBuild(0.427, "step 3 of 7"))
    assert reason.code == "image-building"
    assert reason.message == "Image torch:2 is being built: 42 % done (step 3 of 7)."
    assert reason.details == {"image": "torch:2", "message": "step 3 of 7", "percent": 42}


def test_it_admits_that_the_progress_of_an_image_is_not_known():
    reason = gate_reason(image="torch:2", image_build=ImageBuild(None, ""))
    assert reason.message == "Image torch:2 is being built: progress not known."
    assert reason.details["percent"] is None


def test_it_says_how_to_mend_a_failed_image():
    build = ImageBuild(0.5, "no space left on the disk", failed=True, fix="Free 4 GiB and build again.")
    reason = gate_reason(image="torch:2", image_build=build)
    assert (reason.code, reason.never) == ("image-build-failed", True)
    assert reason.message == (
        "Image torch:2 could not be built: no space left on the disk. Free 4 GiB and build again."
    )  # fmt: skip
    assert reason.details["fix"] == "Free 4 GiB and build again."


def test_it_refuses_kernels_of_two_architectures_on_one_agent():
    reason = gate_reason(kernels=[{"cpu": 1}, {"cpu": 1}], architectures=["x86_64", "aarch64"])
    assert (reason.code, reason.never) == ("mixed-architectures", True)
    assert "need 2 architectures (aarch64, x86_64)" in reason.message


def test_it_refuses_a_session_without_kernels():
    assert gate_reason(kernels=[]).code == "no-kernels"
