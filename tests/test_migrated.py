"""What a test that commits has changed is gone behind it, and what it deleted is there again."""

from __future__ import annotations

import pytest
from django.contrib.contenttypes.models import ContentType

from backendai.domain.accounts.models import User
from backendai.domain.cluster.models import SlotType
from tests import migrated
from tests.cast import make_cast
from tests.factories import make_running_session

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("turn", [1, 2])
def test_the_rows_of_the_migrations_come_back_and_no_others_stay(turn: int) -> None:
    before = migrated.read_rows()
    assert SlotType.objects.exists(), f"turn {turn} begins with what was sown"
    assert ContentType.objects.exists()
    assert not User.objects.exists()
    make_running_session(make_cast().alice, cluster_size=2)
    SlotType.objects.filter(name="mem").delete()
    SlotType.objects.filter(name="cpu").update(description="Something else.")
    assert migrated.read_rows() != before
    migrated.restore(before)
    assert migrated.read_rows() == before
