"""Shares own images with projects of the owner, and ends the sharing. Running sessions continue."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db import transaction

from backendai.base.core.errors import Conflict, NotFound
from backendai.base.core.messages import Message
from backendai.domain.accounts.models import Project, User
from backendai.domain.activity.access_notices import notify_of_access, withdraw_access
from backendai.domain.activity.services import audit
from backendai.domain.catalog.models import Image, ImageShare


def projects_to_share_with(owner: User, image: Image) -> list[Project]:
    """Return the owner's projects with which the image can be shared, by name.

    Leaves out those that have it, and those whose domain may not use it.
    """
    rows = Project.objects.usable_by(owner).exclude(shared_images__image=image).select_related("domain")
    return [project for project in rows.order_by("name") if _is_open_to(image, project)]


def share_image(owner: User, image: Image, project_id: UUID, *, now: datetime) -> ImageShare:
    """Share an own image with a project of the owner; sharing again changes nothing.

    Raises NotFound for a project of others, or Conflict if its domain may not use the image.
    """
    project = Project.objects.usable_by(owner).filter(pk=project_id).first()
    if project is None:
        raise NotFound("Project not found, or you are not a member.", field="project")
    if not _is_open_to(image, project):
        raise Conflict(
            "{display_name} is not open to the domain of project {project}.",
            display_name=image.display_name,
            project=project.name,
            field="project",
            code="image-not-open",
        )
    with transaction.atomic():
        share: ImageShare
        share, is_new = ImageShare.objects.get_or_create(image=image, project=project, defaults={"created_at": now})
        if is_new:
            told = {"name": image.name, "project": project.name}
            audit(owner.pk, "image.share", "image", [image.pk], **told)
            text = Message(
                "{who} shares the image {name} with the project {project}: start sessions from it.",
                who=owner.email,
                name=image.display_name,
                project=project.name,
            )
            people = project.memberships.exclude(user=owner).values_list("user_id", flat=True)
            notify_of_access(people, ("image", image.pk), image.display_name, text, now=now)
    return share


def take_back_image(owner: User, image: Image, project_id: UUID) -> Project:
    """End the sharing of an image with a project; return the project. Raises NotFound if it is not shared with it."""
    with transaction.atomic():
        share = ImageShare.objects.filter(image=image, project=project_id).select_related("project").first()
        if share is None:
            raise NotFound("The image is not shared with this project.", field="project")
        share.delete()
        withdraw_access(("image", image.pk), share.project.memberships.values_list("user_id", flat=True))
        told = {"name": image.name, "project": share.project.name}
        audit(owner.pk, "image.take-back", "image", [image.pk], **told)
    project: Project = share.project
    return project


def _is_open_to(image: Image, project: Project) -> bool:
    return Image.objects.filter(pk=image.pk).usable_in(project.domain_id).exists()
