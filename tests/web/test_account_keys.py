"""The account's pages of keys and files."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from backendai.domain.accounts.models import BootstrapScript, Dotfile, KeyPair, SshKey, User
from backendai.domain.accounts.services.environments import save_dotfile
from tests.cast import Cast
from tests.factories import make_session
from tests.test_census import PUBLIC_KEY

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
KEYS = reverse("web:key_pairs")


def test_every_page_is_in_the_menu_of_every_page(cast: Cast, browse: Browse) -> None:
    client = browse(cast.alice)
    names = ("account", "tokens", "key_pairs", "ssh_keys", "environment")
    addresses = [reverse("mfa_index"), *(reverse(f"web:{name}") for name in names)]
    for address in addresses:
        page = client.get(address).content.decode()
        assert f'href="{address}" aria-current="page"' in page
        assert all(f'href="{other}"' in page for other in addresses)


def test_what_cannot_be_undone_is_not_done_by_one_press(cast: Cast, browse: Browse) -> None:
    client = browse(cast.alice)
    save_dotfile(cast.alice, cast.alice, ".rc", "x")
    extra = KeyPair.objects.create(user=cast.alice, secret="s" * 40)
    client.post(reverse("web:ssh_keys"), {"name": "laptop", "public_key": PUBLIC_KEY})
    client.post(reverse("web:tokens"), {"name": "script", "days": "30"})
    for page, actions in (
        ("tokens", ["/revoke/"]),
        ("key_pairs", [reverse("web:key_pair_rotate", args=[extra.pk]), 'value="delete"']),
        ("ssh_keys", ["/delete/"]),
        ("environment", ["/delete/"]),
    ):
        shown = client.get(reverse(f"web:{page}")).content.decode()
        asked = " ".join(re.findall(r'<details class="sure">.*?</details>', shown, re.DOTALL))
        for action in actions:
            assert shown.count(action) == asked.count(action) > 0, (page, action)


def test_pages_ask_the_same_number_of_questions_however_much_there_is(
    cast: Cast, browse: Browse, django_assert_num_queries: Any
) -> None:
    client = browse(cast.alice)
    for name, queries in (("tokens", 3), ("key_pairs", 3), ("ssh_keys", 4), ("environment", 4)):
        client.get(reverse(f"web:{name}"))
        for number in range(3):
            save_dotfile(cast.alice, cast.alice, f".{name}{number}", "x")
            KeyPair.objects.create(user=cast.alice)
        with django_assert_num_queries(queries):
            client.get(reverse(f"web:{name}"))


def test_it_shows_the_secret_of_a_key_pair_once(cast: Cast, browse: Browse) -> None:
    client = browse(cast.alice)
    made = client.post(KEYS, {"name": "scripts"})
    pair, secret = made.context["made"]
    assert secret in made.content.decode()
    assert "no-store" in made["Cache-Control"]
    assert secret not in client.get(KEYS).content.decode()
    turned = client.post(reverse("web:key_pair_rotate", args=[pair.pk]))
    assert turned.context["made"][1] not in (secret, client.get(KEYS).content.decode())
    assert client.post(KEYS, {"name": " "}).status_code == 422
    assert browse(cast.bob).post(reverse("web:key_pair_rotate", args=[pair.pk])).status_code == 404


def test_it_chooses_the_main_pair_and_says_why_one_cannot_go(cast: Cast, browse: Browse) -> None:
    client = browse(cast.alice)
    old = cast.alice.key_pairs.get()
    make_session(cast.alice)
    pair = client.post(KEYS, {"name": "scripts"}).context["made"][0]

    def do(which: KeyPair, action: str) -> str:
        return client.post(
            reverse("web:key_pair_change", args=[which.pk]), {"action": action}, follow=True
        ).content.decode()

    assert "make another one the main one first" in do(old, "deactivate")
    do(pair, "main")
    assert "Active sessions of this key pair: 1." in do(old, "delete")
    do(old, "deactivate")
    assert not KeyPair.objects.get(pk=old.pk).is_active
    do(old, "activate")
    assert KeyPair.objects.get(pk=old.pk).is_active
    assert client.post(reverse("web:key_pair_change", args=["AKNONE"]), {"action": "main"}).status_code == 404


def test_it_registers_ssh_keys_and_says_what_is_wrong_with_one(cast: Cast, browse: Browse) -> None:
    client, page = browse(cast.alice), reverse("web:ssh_keys")
    assert client.post(page, {"public_key": f"{PUBLIC_KEY} laptop"})["Location"] == page
    key = SshKey.objects.get()
    assert key.fingerprint in client.get(page).content.decode()
    wrong = client.post(page, {"public_key": "-----BEGIN OPENSSH PRIVATE KEY-----"})
    assert wrong.status_code == 422
    assert "private key" in str(wrong.context["form"].errors["public_key"])
    assert browse(cast.bob).post(reverse("web:ssh_key_delete", args=[key.pk])).status_code == 404
    client.post(reverse("web:ssh_key_delete", args=[key.pk]))
    assert not SshKey.objects.exists()


def test_it_keeps_files_and_the_script_and_loses_nothing_that_was_typed(cast: Cast, browse: Browse) -> None:
    client, page = browse(cast.alice), reverse("web:environment")
    fields = {"path": ".bashrc", "permission": "600", "content": "alias ll='ls -l'\r\n"}
    assert client.post(page, fields)["Location"] == page
    file = Dotfile.objects.get()
    assert (file.content, file.permission, file.user) == ("alias ll='ls -l'\n", "600", cast.alice)
    edited = client.get(page, {"edit": ".bashrc"})
    assert edited.context["form"]["content"].value() == "alias ll='ls -l'\n"
    wrong = client.post(page, fields | {"path": "../.bashrc", "content": "typed for an hour"})
    assert wrong.status_code == 422
    assert "typed for an hour" in wrong.content.decode()
    assert "path" in wrong.context["form"].errors
    shown = browse(cast.bob).get(page, {"edit": ".bashrc"})
    assert "alias" not in shown.content.decode()
    client.post(reverse("web:script"), {"content": "#!/bin/sh\r\necho hi\r\n"})
    assert BootstrapScript.objects.get().content == "#!/bin/sh\necho hi\n"
    assert "echo hi" in client.get(page).content.decode()
    long = client.post(reverse("web:script"), {"content": "x" * 70_000})
    assert long.status_code == 422
    assert "64 KiB" in str(long.context["script_form"].errors["content"])
    client.post(reverse("web:dotfile_delete", args=[file.pk]))
    assert not Dotfile.objects.exists()
