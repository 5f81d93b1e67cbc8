"""Creates, changes and deletes images of the catalogue."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import ProtectedError

from backendai.base.core.errors import Conflict, UserError
from backendai.base.core.image_names import is_exact_digest, parse_image_name
from backendai.base.core.messages import Message
from backendai.base.core.names import check_catalogue_name
from backendai.base.wire.images import OWNER_LABEL
from backendai.domain.activity.changes import delete_object, plain_value
from backendai.domain.activity.services import audit
from backendai.domain.catalog.models import Image, ImageAlias, ImageOnAgent
from backendai.domain.catalog.services import adopt_labels
from backendai.domain.cluster.slot_types import check_known

_LONGEST_NAME = 128
_MADE_FOR_US = "ai.backend.kernelspec"
_MOST_ALIASES = 20


def create_image(actor_id: UUID | None, values: Mapping[str, Any]) -> Image:
    """Create an image with these values of its fields; ``name`` and ``reference`` are required. Raises UserError."""
    parse_image_name(str(values.get("reference", "")))
    _check_digest(values)
    _check_slots(Image(), values)
    direct = {name: value for name, value in values.items() if name not in ("aliases", "domains")}
    image = Image(**direct)
    with transaction.atomic():
        _write(image)
        audit(actor_id, "image.create", "image", [image.pk], name=image.name, reference=image.reference)
        set_aliases(image, values.get("aliases", ()))
        image.domains.set(values.get("domains", ()))
        adopt_labels(image)
    return image


def adopt_from_agents(actor_id: UUID | None) -> list[Image]:
    """Add disabled images for references that agents have and the catalogue lacks; return them.

    Only images built for this platform are added.
    """
    known = set(Image.objects.values_list("reference", flat=True))
    rows = ImageOnAgent.objects.exclude(reference__in=known).exclude(labels={}).order_by("reference", "pk")
    found: dict[str, ImageOnAgent] = {}
    for row in rows:
        is_for_all = _MADE_FOR_US in row.labels and OWNER_LABEL not in row.labels
        if is_for_all and "@" not in row.reference and row.reference not in found:
            found[row.reference] = row
    made = []
    with transaction.atomic():
        for reference in found:
            image = Image.objects.create(name=free_name(reference), reference=reference, is_enabled=False)
            adopt_labels(image)
            made.append(image)
        audit(actor_id, "image.create", "image", [image.pk for image in made], found_on="agents")
    return made


def free_name(reference: str) -> str:
    """Return an unused name for a new image.

    It is the last part of the reference with its tag, or more of it if that is taken.
    """
    parts = reference.split("/")
    for start in range(len(parts) - 1, -1, -1):
        name = "/".join(parts[start:]).removesuffix(":latest")
        taken = Image.objects.filter(name=name).exists() or ImageAlias.objects.filter(name=name).exists()
        if len(name) <= _LONGEST_NAME and not taken:
            return name
    return f"{parts[-1][:100]}-{secrets.token_hex(4)}"


def change_image(actor_id: UUID | None, image: Image, values: Mapping[str, Any]) -> Image:
    """Save these values of the image's fields; ``aliases`` and ``domains`` replace the earlier ones.

    Raises UserError that names the field, or Conflict for a taken name, and then saves nothing.
    """
    old = {name: _shown(image, name) for name in values}
    _check_digest({name: value for name, value in values.items() if value != old[name]})
    _check_slots(image, values)
    with transaction.atomic():
        for name, value in values.items():
            if name == "aliases":
                set_aliases(image, value)
            elif name == "domains":
                image.domains.set(value)
            else:
                setattr(image, name, value)
        _write(image)
        changes = {name: [before, now] for name, before in old.items() if (now := _shown(image, name)) != before}
        if changes:
            audit(actor_id, "image.change", "image", [image.pk], name=image.name, changes=changes)
    return image


def set_aliases(image: Image, names: Collection[str]) -> None:
    """Set the aliases of an image to exactly these, in the caller's transaction.

    Raises UserError, or Conflict if a name is taken.
    """
    wanted = list(dict.fromkeys(name.strip() for name in names if name.strip()))
    if len(wanted) > _MOST_ALIASES:
        raise UserError(
            "An image has at most {most_aliases} aliases.",
            most_aliases=_MOST_ALIASES,
            field="aliases",
            code="too-many",
        )
    for name in wanted:
        check_catalogue_name(name, field="aliases", longest=_LONGEST_NAME)
    image.aliases.exclude(name__in=wanted).delete()
    there = set(image.aliases.values_list("name", flat=True))
    taken = set(Image.objects.filter(name__in=wanted).values_list("name", flat=True))
    taken |= set(ImageAlias.objects.filter(name__in=wanted).exclude(image=image).values_list("name", flat=True))
    if taken:
        text = Message("{taken} is already a name or an alias of an image.", taken=min(taken))
        raise Conflict(text, field="aliases", code="name-taken")
    ImageAlias.objects.bulk_create(ImageAlias(image=image, name=name) for name in wanted if name not in there)


def delete_image(actor_id: UUID | None, image: Image) -> None:
    """Delete an image from the catalogue; agents and registries keep their copies.

    Raises Conflict if sessions used it.
    """
    try:
        with transaction.atomic():
            delete_object(actor_id, image, "image")
    except ProtectedError as error:
        raise Conflict(
            "{number} sessions, ended ones included, used {image}: disable it instead of removing it.",
            number=len(error.protected_objects),
            image=image.name,
            code="image-in-use",
        ) from error


def _check_slots(image: Image, values: Mapping[str, Any]) -> None:
    for field in ("minimum", "maximum"):
        if isinstance(amounts := values.get(field), Mapping):
            check_known(amounts, field=field, kept=getattr(image, field))


def _check_digest(values: Mapping[str, Any]) -> None:
    """Raise UserError for a malformed digest, which would otherwise fail at every start."""
    digest = values.get("digest")
    if digest and not is_exact_digest(digest):
        text = Message("Write sha256: and 64 digits from 0 to 9 and a to f, or leave it empty.")
        raise UserError(text, field="digest", code="invalid-digest")


def _write(image: Image) -> None:
    try:
        image.full_clean()
    except ValidationError as error:
        field, messages = next(iter(error.message_dict.items()))
        raise UserError(messages[0], field=field, code="invalid-image") from error
    image.save()


def _shown(image: Image, name: str) -> Any:
    if name == "aliases":
        return sorted(image.aliases.values_list("name", flat=True))
    return plain_value(getattr(image, name))
