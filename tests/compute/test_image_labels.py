"""What the labels of an image say is what a launch of it gets."""

from __future__ import annotations

import pytest

from backendai.base.core.errors import UserError
from backendai.domain.compute.spec import RoleSpec
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_image, make_session

pytestmark = pytest.mark.django_db
MIB = 2**20


@pytest.mark.parametrize(
    ("preferred", "asked", "mem", "expected"),
    [
        ("256m", {}, "2g", 256),
        ("256m", {}, "256m", 128),  # never more than half of the memory
        ("256m", {"shm": "96m"}, "2g", 96),
        ("much", {}, "2g", 64),
        ("", {}, "2g", 64),
        ("0", {}, "2g", 64),
        ("-1g", {}, "2g", 64),
    ],
)
def test_an_image_says_how_much_shared_memory_it_prefers(
    cast: Cast, preferred: str, asked: dict[str, str], mem: str, expected: int
) -> None:
    make_image(labels={"ai.backend.resource.preferred.shmem": preferred})
    session = make_session(cast.alice, resources={"cpu": 1, "mem": mem}, **asked)
    assert session.shm_bytes == expected * MIB


def test_the_image_knows_better_than_the_group(cast: Cast) -> None:
    make_group(session_defaults={"shm": "32m"})
    make_image("one", labels={"ai.backend.resource.preferred.shmem": "256m"})
    make_image("two")
    resources = {"cpu": 1, "mem": "1g"}
    assert make_session(cast.alice, image="one", resources=resources).shm_bytes == 256 * MIB
    assert make_session(cast.alice, image="two", resources=resources).shm_bytes == 32 * MIB


@pytest.mark.parametrize(
    ("labels", "runs"),
    [
        ({}, True),
        ({"ai.backend.features": ""}, True),
        ({"ai.backend.features": "query batch"}, True),
        ({"ai.backend.features": "query"}, False),
    ],
)
def test_batch_sessions_need_an_image_with_that_feature(cast: Cast, labels: dict[str, str], runs: bool) -> None:
    make_agent()
    make_image("named", labels=labels)
    make_session(cast.alice, image="named")
    if runs:
        make_session(cast.alice, image="named", session_type="batch", startup_command="true")
        return
    with pytest.raises(UserError) as caught:
        make_session(cast.alice, image="named", session_type="batch", startup_command="true")
    assert (caught.value.code, caught.value.field) == ("image-without-batch", "image")


def test_each_role_of_a_batch_session_needs_it(cast: Cast) -> None:
    make_image("named", labels={"ai.backend.features": "query"})
    roles = {"worker": RoleSpec(image="named", startup_command="true")}
    with pytest.raises(UserError) as caught:
        make_session(cast.alice, session_type="batch", startup_command="true", roles=roles)
    assert caught.value.field == "roles.worker.image"
