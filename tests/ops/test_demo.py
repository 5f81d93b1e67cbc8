"""The demonstration: what it writes, who signs in, and what it keeps away from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from backendai.domain.accounts.models import User
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.models import ComputeSession
from backendai.domain.usage.models import UsageBucket
from backendai.ops.checks import check_demo
from backendai.ops.demo.lab import ADMIN, CROWD, HERE, SEED, WORK
from backendai.ops.demo.people import Crowd
from backendai.ops.demo.seeding import fill
from backendai.ops.run.data_folder import StartRefused, demo_folder
from backendai.ops.tools.seeding import seed
from backendai.portal.web.sign_in.demo import ROLES


def test_it_fills_an_empty_database_once_where_visitors_sign_in_and_people_come(
    db: None, tmp_path: Path, settings: Any
) -> None:
    settings.DEMO = True
    seed(tmp_path, admin_email=ADMIN, group_name=HERE)
    fill(timezone.now(), seed=SEED)
    sessions = ComputeSession.objects.count()
    assert sessions > 200
    assert UsageBucket.objects.filter(slot="cuda.device").exists()
    assert set(CROWD) < set(ResourceGroup.objects.values_list("name", flat=True))
    fill(timezone.now(), seed=SEED)
    assert ComputeSession.objects.count() == sessions
    for role, visitor in ROLES.items():
        client = Client()
        assert f'value="{role}"' in client.get("/login/").content.decode()
        client.post("/login/demo/", {"role": role})
        assert client.session["_auth_user_id"] == str(User.objects.get(email=visitor.email).pk)
        assert b"demo-banner" in client.get("/sessions/").content
    Crowd(seed=SEED, speed=1.0).step(timezone.now())
    live = ComputeSession.objects.filter(status="PENDING", resource_group__name="h100").count()
    assert live >= CROWD["h100"] // 2
    names = {one.name for one in WORK}
    assert {one.name.rpartition("-")[0] for one in ComputeSession.objects.live().exclude(run_task=None)} <= names


def test_a_deployment_lets_nobody_in_without_a_password(db: None, client: Client) -> None:
    assert client.post("/login/demo/", {"role": "superadmin"}).status_code == 404
    assert b"demo" not in client.get("/login/").content


def test_it_refuses_what_is_no_demonstration(tmp_path: Path, settings: Any) -> None:
    own = tmp_path / "var-demo"
    own.mkdir()
    (own / "portal.sqlite3").touch()
    with pytest.raises(StartRefused, match="not a demonstration"):
        demo_folder(tmp_path / "var", "127.0.0.1")
    with pytest.raises(StartRefused, match="no passwords"):
        demo_folder(tmp_path / "other", "0.0.0.0")
    settings.DEMO, settings.DATA_DIR = True, own
    assert [one.id for one in check_demo()] == ["portal.E036"]
    settings.DATA_DIR = demo_folder(tmp_path / "new", "127.0.0.1")
    assert check_demo() == []
