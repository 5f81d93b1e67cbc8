"""Two kernels of one session, of different images and sizes, as the service makes them, in real containers."""

from __future__ import annotations

import pytest
from docker import APIClient

from backendai.agent.backends.docker.backend import DockerBackend
from backendai.domain.compute.services.agents.kernel_specs import spec_for
from backendai.domain.compute.spec import RoleSpec
from tests.agent.images import ensure_tmux_image
from tests.agent.specs import TINY_IMAGE
from tests.cast import Cast
from tests.factories import make_agent, make_image, make_session, place

pytestmark = [pytest.mark.docker, pytest.mark.django_db]
MIB = 2**20


def test_each_container_has_its_own_image_limits_variables_and_command(
    cast: Cast, backend: DockerBackend, engine: APIClient, deployment: str
) -> None:
    tmux = ensure_tmux_image(engine)
    make_image("tiny", reference=TINY_IMAGE)
    make_image("tools", reference=tmux)
    agent = make_agent("n1", cpu=4, mem="4g")
    worker = RoleSpec(
        image="tools", resources={"cpu": "0.5", "mem": "128m"}, environ={"ROLE": "w"}, startup_command="sleep 60"
    )
    session = make_session(
        cast.alice,
        image="tiny",
        session_type="batch",
        startup_command="sleep 50",
        resources={"cpu": "1", "mem": "256m"},
        roles={"worker": worker},
    )
    place(session, agent)
    specs = [
        spec_for(agent, kernel.pk).model_copy(update={"deployment": deployment}) for kernel in session.kernels.all()
    ]
    found = []
    for spec in specs:
        backend.start(spec)
        found.append(engine.inspect_container(f"krn-{spec.kernel_id}"))
    assert [one["Config"]["Image"] for one in found] == [TINY_IMAGE, tmux]
    assert [one["HostConfig"]["Memory"] for one in found] == [256 * MIB, 128 * MIB]
    assert [one["HostConfig"]["NanoCpus"] for one in found] == [10**9, 5 * 10**8]
    assert "ROLE=w" in found[1]["Config"]["Env"] and "ROLE=w" not in found[0]["Config"]["Env"]
    assert "sleep 60" in found[1]["Config"]["Cmd"][-1] and "sleep 50" in found[0]["Config"]["Cmd"][-1]
