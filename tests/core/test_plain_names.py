"""Names that nobody can see, or that change the look of what stands beside them."""

from __future__ import annotations

import pytest

from backendai.base.core.errors import UserError
from backendai.base.core.names import clean_line
from backendai.base.paths.home_paths import path_problem
from backendai.domain.accounts.models import Project
from backendai.domain.accounts.services import create_token
from backendai.domain.accounts.services.environments import save_dotfile
from backendai.domain.accounts.services.key_pairs import create_key_pair
from backendai.domain.accounts.services.projects import create_project
from backendai.domain.catalog.images import create_image
from backendai.domain.cluster.agents import make_join_token
from tests.api.callers import Caller
from tests.cast import Cast
from tests.factories import make_group, make_image

NONSENSE = [
    "two\nlines",
    "zero\u200bwidth",
    "\ufeff",
    "\u202eturned",
    "\u2066kept apart\u2069",
    "soft\u00adhyphen",
    "\u3164",
    "\u2800\u2800",
    "\u200d",
    "tab\there",
]


@pytest.mark.parametrize("name", NONSENSE)
def test_a_name_is_one_visible_line(name: str) -> None:
    with pytest.raises(UserError) as refused:
        clean_line(name)
    assert refused.value.code == "invalid-name"


@pytest.mark.parametrize("name", ["a", "Schöner Name", "ネコ", "می‌خواهم", "🦉", "עברית", " with blanks around "])
def test_any_script_will_do(name: str) -> None:
    assert clean_line(name) == name.strip()


@pytest.mark.django_db
@pytest.mark.parametrize("name", NONSENSE)
def test_tokens_key_pairs_projects_and_dotfiles_have_plain_names(cast: Cast, name: str) -> None:
    domain = Project.objects.select_related("domain").first().domain  # type: ignore[union-attr]
    for make in (
        lambda: create_token(cast.alice, name),
        lambda: create_key_pair(cast.alice, name),
        lambda: create_project(cast.dana, domain, name),
        lambda: save_dotfile(cast.alice, cast.alice, name, ""),
    ):
        with pytest.raises(UserError):
            make()


@pytest.mark.parametrize("path", [" ", "a/ /b", " .bashrc", ".bashrc ", "\u3164"])
def test_a_path_has_no_blank_parts(path: str) -> None:
    assert path_problem(path)


@pytest.mark.django_db
@pytest.mark.parametrize("digest", ["-1", " ", "\ufeff", "sha256:12", "sha256:" + "g" * 64])
def test_an_image_has_a_digest_that_engines_know(cast: Cast, digest: str) -> None:
    with pytest.raises(UserError, match="sha256"):
        create_image(cast.dana.pk, {"name": "x", "reference": "x:1", "digest": digest})
    image = make_image()
    answer = Caller(cast.dana).patch(f"/api/v1/images/{image.pk}/", {"digest": digest})
    assert (answer.status_code, answer.json()["field"]) == (400, "digest")


@pytest.mark.django_db
def test_blanks_are_no_prefix_and_no_rank_is_negative(cast: Cast) -> None:
    make_group("blanks")
    with pytest.raises(UserError):
        make_join_token(cast.dana, make_group("more"), now=None, name_prefix="  ")  # type: ignore[arg-type]
    caller = Caller(cast.dana)
    body = {"resource_group": "blanks", "name_prefix": "  ", "reusable": True}
    assert caller.post("/api/v1/join-tokens/", body).status_code == 400
    preset = {"name": "tiny", "resources": {"cpu": "1"}, "rank": -1}
    assert caller.post("/api/v1/presets/", preset).status_code == 400
