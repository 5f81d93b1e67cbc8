"""NUL characters stop at the door."""

import pytest
from django.test import Client

pytestmark = pytest.mark.django_db


def test_it_refuses_a_nul_in_the_query() -> None:
    assert Client().get("/login/?next=%00").status_code == 400
    assert Client().get("/login/?next=/").status_code == 200


def test_it_refuses_a_nul_in_a_cookie() -> None:
    client = Client()
    client.cookies["portal"] = "a\0b"
    assert client.get("/login/").status_code == 400
