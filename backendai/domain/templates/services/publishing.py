"""Creating templates, publishing versions, making one current, and deleting them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Max

from backendai.base.core.errors import Conflict, NotAllowed, UserError
from backendai.base.core.messages import Message
from backendai.base.core.names import check_catalogue_name, clean_line
from backendai.base.core.written_documents import WrittenDocument, read_document
from backendai.base.core.written_documents import written as written_text
from backendai.domain.accounts.models import Project, User
from backendai.domain.activity.access_notices import notify_of_access, withdraw_access
from backendai.domain.activity.services import audit
from backendai.domain.templates.documents import digest_of
from backendai.domain.templates.kinds import TemplateKind, kind_of, largest_limits
from backendai.domain.templates.models import ICONS, Template, TemplateVersion
from backendai.domain.templates.original import converted, is_original
from backendai.domain.templates.services.launching import version_named

MOST_OF_A_SCOPE = 200
MOST_VERSIONS = 200
_CHANGED = ("title", "description", "icon", "deprecated")


@dataclass(frozen=True, slots=True)
class TemplateDraft:
    """What a template is to be called and where it belongs. ``project``: its id or name, of scope project."""

    name: str
    scope: str = Template.Scope.PRIVATE
    project: str = ""
    title: str = ""
    description: str = ""
    icon: str = ICONS[0]


@dataclass(frozen=True, slots=True)
class Publishable:
    """A document that can be published, with its text and the kind of its template."""

    written: WrittenDocument
    text: str
    kind: TemplateKind


def read_and_check(user: User, text: str) -> Publishable:
    """Return a document that can be published; one of the original platform is converted, and the user's templates
    stand for its nodes. A UserError says with line and column what is wrong."""
    largest, most = largest_limits()
    written = read_document(text, largest=largest, most=most)
    try:
        if is_original(written.value):
            text = written_text(converted(written.value, lambda name: version_named(user, name).document))
            written = read_document(text)
        kind = kind_of(written.value)
        if kind.largest < largest:
            written = read_document(text, largest=kind.largest, most=kind.most_values)
        kind.check(written.value)
    except UserError as error:
        raise written.placed(error) from None
    return Publishable(written, text, kind)


def create_template(user: User, wish: TemplateDraft, text: str, *, note: str = "", now: datetime) -> Template:
    """Return a new template whose first version is current. Raises UserError for a document or name that will not do,
    NotAllowed for a scope in which the user may not publish, Conflict when the name is taken."""
    found = read_and_check(user, text)
    check_catalogue_name(wish.name)
    values = _values(user, {"title": wish.title, "description": wish.description, "icon": wish.icon})
    place = _place(user, wish)
    if Template.objects.filter(scope=wish.scope, **place).count() >= MOST_OF_A_SCOPE:
        raise Conflict("There are {most} templates here already: delete one.", most=MOST_OF_A_SCOPE, code="too-many")
    try:
        with transaction.atomic():
            template: Template = Template.objects.create(
                scope=wish.scope,
                name=wish.name,
                kind=found.kind.name,
                created_at=now,
                updated_at=now,
                **place,
                **values,
            )
            template.current = _write_version(template, 1, user, found, note, now)
            template.save(update_fields=["current"])
            audit(user.pk, "template.create", "template", [template.pk], name=str(template))
            _notify_project(user, template, now)
    except IntegrityError as error:
        text_ = Message("There is a template {name} here already: choose another name.", name=repr(wish.name))
        raise Conflict(text_, field="name", code="name-taken") from error
    return template


def _notify_project(user: User, template: Template, now: datetime) -> None:
    """Notify the other members of the project of its new template."""
    if template.project is None:
        return
    text = Message(
        "{who} published the template {name} for the project {project}.",
        who=user.email,
        name=template.title or template.name,
        project=template.project.name,
    )
    people = template.project.memberships.exclude(user=user).values_list("user_id", flat=True)
    notify_of_access(people, ("template", template.pk), template.title or template.name, text, now=now)


def publish_version(user: User, template: Template, text: str, *, note: str = "", now: datetime) -> TemplateVersion:
    """Return a new version; which one is current stays. Conflict when it says the same as the newest, or when there are
    as many as there may be. Locks the template."""
    check_changeable(user, template)
    found = read_and_check(user, text)
    if found.kind.name != template.kind:
        told = Message(
            "Template {name} is of kind {kind}: its versions are, too.", name=template.name, kind=template.kind
        )
        raise found.written.placed(UserError(told, field="kind", code="other-kind"))
    with transaction.atomic():
        Template.objects.select_for_update().get(pk=template.pk)
        newest = template.versions.order_by("-number").first()
        if newest and newest.digest == digest_of(found.written.value) and newest.text == found.text:
            raise Conflict("Version {number} says the same.", number=newest.number, field="text", code="same-version")
        number = (template.versions.aggregate(most=Max("number"))["most"] or 0) + 1
        if number > MOST_VERSIONS:
            raise Conflict("A template has at most {most} versions.", most=MOST_VERSIONS, code="too-many")
        version = _write_version(template, number, user, found, note, now)
        Template.objects.filter(pk=template.pk).update(updated_at=now)
        audit(user.pk, "template.publish", "template", [template.pk], name=str(template), version=number)
    return version


def activate_version(user: User, template: Template, number: int, *, now: datetime) -> TemplateVersion:
    """Make a version the current one; what runs stays as it is. Raises UserError for a number that there is not."""
    check_changeable(user, template)
    version: TemplateVersion | None = template.versions.filter(number=number).first()
    if version is None:
        text = Message("Version {number} not found.", number=number)
        raise UserError(text, field="version", code="unknown-template-version")
    if template.current_id == version.pk:
        return version
    old = template.current.number if template.current else None
    with transaction.atomic():
        Template.objects.filter(pk=template.pk).update(current=version, updated_at=now)
        audit(user.pk, "template.activate", "template", [template.pk], changes={"version": [old, number]})
    template.current = version
    return version


def change_template(user: User, template: Template, values: Mapping[str, str], *, now: datetime) -> None:
    """Change title, description, icon, or why it is deprecated."""
    check_changeable(user, template)
    wanted = _values(user, values)
    changes = {name: [getattr(template, name), value] for name, value in wanted.items()}
    changes = {name: pair for name, pair in changes.items() if pair[0] != pair[1]}
    if not changes:
        return
    with transaction.atomic():
        Template.objects.filter(pk=template.pk).update(updated_at=now, **wanted)
        audit(user.pk, "template.change", "template", [template.pk], name=str(template), changes=changes)
    template.refresh_from_db()


def delete_template(user: User, template: Template) -> None:
    """Delete a template with its versions; sessions keep what they were made of."""
    check_changeable(user, template)
    with transaction.atomic():
        audit(user.pk, "template.delete", "template", [template.pk], name=str(template))
        withdraw_access(("template", template.pk))
        template.delete()


def may_change(user: User, template: Template) -> bool:
    """Return whether the user may publish and change it; one query."""
    return bool(Template.objects.changeable_by(user).filter(pk=template.pk).exists())


def check_changeable(user: User, template: Template) -> None:
    """Refuse (NotAllowed) anyone who may only look at it."""
    if not may_change(user, template):
        raise NotAllowed("You may use this template, but not change it: save a copy of it as your own.")


def places_of(user: User) -> list[tuple[str, str, str]]:
    """Return where the user may publish, as scope, project id and name."""
    places = [(str(Template.Scope.PRIVATE), "", "")]
    projects = Project.objects.managed_by(user).filter(is_active=True).order_by("name").values_list("pk", "name")
    places += [(str(Template.Scope.PROJECT), str(pk), name) for pk, name in projects[:100]]
    if user.domain_id and user.role in (User.Role.ADMIN, User.Role.SUPERADMIN):
        places.append((str(Template.Scope.DOMAIN), "", user.domain.name if user.domain else ""))
    if user.is_superadmin:
        places.append((str(Template.Scope.PUBLIC), "", ""))
    return places


def _write_version(
    template: Template, number: int, user: User, found: Publishable, note: str, now: datetime
) -> TemplateVersion:
    return TemplateVersion.objects.create(
        template=template,
        number=number,
        document=found.written.value,
        text=found.text,
        digest=digest_of(found.written.value),
        note=clean_line(note, longest=255, field="note"),
        author=user,
        created_at=now,
    )


def _place(user: User, wish: TemplateDraft) -> dict[str, Any]:
    """Return to whom a template of this scope belongs; NotAllowed where the user may not publish."""
    match wish.scope:
        case Template.Scope.PRIVATE:
            return {"owner": user}
        case Template.Scope.PROJECT:
            named = Project.objects.managed_by(user).filter(is_active=True)
            found = next((one for one in named if wish.project in (str(one.pk), one.name)), None)
            if found is None:
                text = Message("Choose a project that you administer.")
                raise NotAllowed(text, field="project", code="not-allowed")
            return {"project": found}
        case Template.Scope.DOMAIN if user.domain_id and user.role in (User.Role.ADMIN, User.Role.SUPERADMIN):
            return {"domain": user.domain}
        case Template.Scope.PUBLIC if user.is_superadmin:
            return {}
    if wish.scope in Template.Scope.values:
        raise NotAllowed("You may not publish templates of this scope.", field="scope", code="not-allowed")
    allowed = ", ".join(Template.Scope.values)
    raise UserError("Unknown scope: use {allowed}.", allowed=allowed, field="scope", code="invalid-scope")


def _values(user: User, said: Mapping[str, str]) -> dict[str, str]:
    longest = {"title": 128, "description": 500, "deprecated": 255}
    values = {
        name: clean_line(text, longest=longest[name], field=name) for name, text in said.items() if name in longest
    }
    if "icon" in said:
        if said["icon"] not in ICONS:
            text = Message("Unknown icon: use {icons}.", icons=", ".join(ICONS))
            raise UserError(text, field="icon", code="unknown-icon")
        values["icon"] = said["icon"]
    return values


def text_of(document: Mapping[str, Any]) -> str:
    """Return a document as JSON that people can read."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
