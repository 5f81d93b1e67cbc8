"""What a fresh installation starts with."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from backendai.domain.accounts.models import User
from backendai.domain.catalog.models import Image
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.status import Status
from backendai.ops.tools.seeding import seed
from backendai.portal.loops.group_pass import schedule
from tests.factories import make_agent, make_running_session, make_session

pytestmark = pytest.mark.django_db


def seeded(folder: Path) -> ResourceGroup:
    seed(folder, admin_email="root@lab.example", admin_password="a-long-secret-for-a-test")
    return ResourceGroup.objects.get(name="default")


def test_a_small_session_passes_a_large_one_that_does_not_fit(tmp_path: Path) -> None:
    group = seeded(tmp_path)
    Image.objects.update(is_built_here=False)  # there is no node that could have built it
    owner = User.objects.get(email="root@lab.example")
    agent = make_agent(cpu=2)
    make_running_session(owner, agent, resources={"cpu": "0.1", "mem": "64m"})
    large = make_session(owner, resources={"cpu": 2, "mem": "64m"})
    small = make_session(owner, resources={"cpu": "0.1", "mem": "64m"})
    now = timezone.now()
    for tick in range(15):
        schedule(group, now + timedelta(seconds=2 * tick))
    large.refresh_from_db()
    small.refresh_from_db()
    assert (large.status, small.status) == (Status.PENDING, Status.SCHEDULED)


def test_a_group_that_exists_keeps_its_rules(tmp_path: Path) -> None:
    group = seeded(tmp_path)
    ResourceGroup.objects.filter(pk=group.pk).update(backfill=False, retries_to_skip=0)
    group = seeded(tmp_path)
    assert (group.backfill, group.retries_to_skip) == (False, 0)
