"""Profiles and tokens: who can read them, and to whom they are sent."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from bai.config import Profile, config_folder, read_profile, read_profiles, remove_token, save_profile, write_private

PROFILE = Profile(name="lab", url="https://portal.example.org", project="vision", token="bai_secret")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("BAI_URL", "BAI_TOKEN", "BAI_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_a_profile_is_read_back_and_its_token_lies_apart() -> None:
    save_profile(PROFILE)
    save_profile(Profile(name="two.b", url="http://127.0.0.1:8080", insecure=True, token="other"))
    assert read_profile("lab") == PROFILE
    assert read_profiles()["two.b"] == {"url": "http://127.0.0.1:8080", "insecure": True}
    assert "secret" not in (config_folder() / "config.toml").read_text()
    remove_token(Profile(name="lab", token="that of BAI_TOKEN"))
    assert read_profile("lab") == PROFILE
    remove_token(PROFILE)
    assert read_profile("lab").token == "" and read_profile("lab").project == "vision"


def test_nobody_else_can_read_a_token_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = os.fdopen

    def watch(descriptor: int, mode: str) -> object:
        seen.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return real(descriptor, mode)

    monkeypatch.setattr("bai.config.os.fdopen", watch)
    before = os.umask(0)
    try:
        save_profile(PROFILE)
    finally:
        os.umask(before)
    assert set(seen) == {0o600}
    assert stat.S_IMODE(PROFILE.token_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(PROFILE.token_file.parent.stat().st_mode) == 0o700


def test_a_file_that_another_process_left_is_not_opened(home: Path) -> None:
    trap = home / f".token.{os.getpid()}"
    trap.symlink_to(home / "elsewhere")
    write_private(home / "token", "secret")
    assert (home / "token").read_text() == "secret" and not (home / "elsewhere").exists()


def test_the_token_of_a_profile_goes_to_no_other_portal(monkeypatch: pytest.MonkeyPatch) -> None:
    save_profile(PROFILE)
    monkeypatch.setenv("BAI_PROFILE", "lab")
    monkeypatch.setenv("BAI_URL", "https://elsewhere.example.org")
    assert (read_profile().url, read_profile().token) == ("https://elsewhere.example.org", "")
    monkeypatch.setenv("BAI_TOKEN", "mine")
    assert read_profile().token == "mine"
    monkeypatch.setenv("BAI_URL", PROFILE.url + "/")
    monkeypatch.delenv("BAI_TOKEN")
    assert read_profile().token == "bai_secret"


def test_an_unknown_profile_names_those_that_exist() -> None:
    save_profile(PROFILE)
    with pytest.raises(ValueError, match="Profiles: lab"):
        read_profile("labb")


@pytest.mark.parametrize("name", ["../lab", "a/b", ".hidden", ""])
def test_a_profile_is_named_without_a_path(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        save_profile(Profile(name=name, url="https://portal.example.org", token="x"))
    assert read_profiles() == {}


def test_the_keys_of_a_profile_count_at_its_portal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    save_profile(replace(PROFILE, insecure=True, ca="/lab.pem"))
    monkeypatch.setenv("BAI_TOKEN", "mine")
    monkeypatch.setenv("BAI_URL", "https://elsewhere.example.org")
    assert read_profile("lab") == Profile(name="lab", url="https://elsewhere.example.org", token="mine")
    save_profile(Profile(name="lab", url="https://elsewhere.example.org", token="mine"))
    assert read_profiles()["lab"] == {"url": "https://elsewhere.example.org"}


def test_a_file_that_a_link_leads_to_is_replaced_there(home: Path) -> None:
    (home / "link").symlink_to(home / "kept")
    write_private(home / "link", "text")
    assert (home / "link").is_symlink() and (home / "kept").read_text() == "text"
