"""What a node is told to start: all in one read for one kernel."""

from __future__ import annotations

from typing import Any

import pytest

from backendai.base.core.errors import NotFound
from backendai.domain.compute.services.agents.kernel_specs import spec_for
from tests.cast import Cast
from tests.factories import make_agent, make_image, make_session, place

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("kernels", "queries"), [(1, 3), (2, 4)]
)  # what lies in the home, and of a cluster also the names of the others
def test_a_spec_is_read_at_once(cast: Cast, kernels: int, queries: int, django_assert_num_queries: Any) -> None:
    make_image("jupyter", process_reference="python3", labels={"ai.backend.service-ports": "jupyter:http:8080"})
    agent = make_agent()
    session = make_session(
        cast.alice, image="jupyter", cluster_size=kernels, environ={"SEED": "7", "OPENBLAS_NUM_THREADS": "2"}
    )
    place(session, agent)
    for kernel in session.kernels.all():
        with django_assert_num_queries(queries):
            spec = spec_for(agent, kernel.pk)
        assert spec.environ["BACKENDAI_USER_EMAIL"] == "alice@example.com"
        assert spec.environ["SEED"] == "7"
        assert (spec.environ["OMP_NUM_THREADS"], spec.environ["OPENBLAS_NUM_THREADS"]) == ("1", "2"), "its own wins"
        assert len(spec.peers) == kernels


def test_another_node_gets_no_spec(cast: Cast) -> None:
    session = make_session(cast.alice)
    place(session, make_agent())
    with pytest.raises(NotFound):
        spec_for(make_agent(), session.kernels.get().pk)
