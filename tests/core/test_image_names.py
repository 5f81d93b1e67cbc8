"""References of images, in their parts."""

from __future__ import annotations

import pytest

from backendai.base.core.errors import UserError
from backendai.base.core.image_names import ImageName, parse_image_name, pinned

DIGEST = "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("python", ImageName("docker.io", "python", "latest")),
        ("lab/python:3.12", ImageName("docker.io", "lab/python", "3.12")),
        ("localhost/python", ImageName("localhost", "python", "latest")),
        ("cr.example.org:5000/lab/a/b:x", ImageName("cr.example.org:5000", "lab/a/b", "x")),
        ("cr.example.org/b", ImageName("cr.example.org", "b", "latest")),
        (f"cr.example.org/b:1@{DIGEST}", ImageName("cr.example.org", "b", "1", DIGEST)),
        (f"b@{DIGEST}", ImageName("docker.io", "b", "latest", DIGEST)),
    ],
)
def test_it_finds_the_parts(text: str, parts: ImageName) -> None:
    assert parse_image_name(text) == parts


@pytest.mark.parametrize(
    "text", ["", "UPPER", "a b", "a//b", "-a", "a:", "a:b c", "a@sha256:xyz", "http://a/b", "a/../b", "../etc", "a@"]
)
def test_it_refuses_what_is_no_image(text: str) -> None:
    with pytest.raises(UserError, match="not the name of an image"):
        parse_image_name(text)


def test_a_digest_stands_in_the_place_of_the_tag() -> None:
    assert pinned("cr.example.org:5000/b:1", DIGEST) == f"cr.example.org:5000/b@{DIGEST}"
    assert pinned("cr.example.org:5000/b", DIGEST) == f"cr.example.org:5000/b@{DIGEST}"
    assert pinned("b:1", "") == "b:1"
    assert pinned(f"b@{DIGEST}", "sha256:other") == f"b@{DIGEST}"
