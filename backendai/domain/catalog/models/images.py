"""Images that sessions start from, their aliases, and the agents that have them."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.service_ports import LABEL as SERVICES_LABEL
from backendai.base.core.service_ports import NATIVE_SERVICES
from backendai.base.core.slots import Slots, is_accelerator, kind_of, parse_size
from backendai.domain.accounts.models import Domain, Project
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.catalog.image_rules import exact_bounds, wrong_image
from backendai.domain.catalog.models.registries import Registry
from backendai.domain.catalog.querysets import ImageQuerySet, ImageShareQuerySet
from backendai.domain.cluster.models import Agent
from backendai.domain.cluster.node_jobs import NodeJobRow

ACCELERATORS_LABEL = "ai.backend.accelerators"
FEATURES_LABEL, SHM_LABEL = "ai.backend.features", "ai.backend.resource.preferred.shmem"


class Image(models.Model):
    """An image that sessions start from.

    People type its ``name``; the container engine pulls its ``reference``. ``digest`` is the manifest's for an image of
    a registry, and the engine's image id for one made on agents.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=128, unique=True)
    title = models.CharField(max_length=128, blank=True)
    description = models.CharField(max_length=255, blank=True)
    reference = models.CharField(max_length=255, unique=True)
    process_reference = models.CharField(
        max_length=255, blank=True, help_text=Message("Program for agents without a container engine.")
    )
    architecture = models.CharField(max_length=32, blank=True)
    digest = models.CharField(
        max_length=128, blank=True, help_text=Message("The exact content that new sessions start; empty: any.")
    )
    size_bytes = models.BigIntegerField(null=True, blank=True)
    labels = models.JSONField(default=dict, blank=True)
    services = models.CharField(
        max_length=1024,
        blank=True,
        help_text=Message("Overrides the image's label, for example jupyterlab:http:[8888],ring:tcp:9000."),
    )
    minimum = models.JSONField(default=dict, blank=True, help_text="Smallest slots, as decimal strings.")
    maximum = models.JSONField(
        default=dict, blank=True, help_text=Message("Largest slots; slots that are not listed have no limit.")
    )
    is_enabled = models.BooleanField(default=True)
    is_built_here = models.BooleanField(default=False, help_text=Message("Built on this machine by build-images."))
    is_customized = models.BooleanField(
        default=False, help_text=Message("Saved from a session; visible to its owner only.")
    )
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="images"
    )
    registry = models.ForeignKey(Registry, null=True, blank=True, on_delete=models.SET_NULL, related_name="images")
    domains = models.ManyToManyField(
        Domain,
        blank=True,
        related_name="images",
        help_text=Message("Only these domains can use the image; empty: all."),
    )
    created_at = models.DateTimeField(default=timezone.now)
    deleted_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text=Message("Its owner deleted it; ended sessions still name it.")
    )

    objects = ImageQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        indexes = [
            models.Index(fields=["owner"], condition=models.Q(is_customized=True), name="image_of_owner"),
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Normalize the amounts to exact decimal strings. Raises ValidationError with the errors by field."""
        wrong = wrong_image(self.minimum, self.maximum, self.services)
        if ImageAlias.objects.filter(name=self.name).exclude(image=self.pk).exists():
            wrong["name"] = Message("{name} is another name of another image already.", name=self.name)
        if wrong:
            raise ValidationError(wrong)
        self.minimum, self.maximum = exact_bounds(self.minimum), exact_bounds(self.maximum)

    @property
    def minimum_slots(self) -> Slots:
        """The smallest amounts that a kernel of the image may request."""
        return Slots.parse(self.minimum)

    @property
    def maximum_slots(self) -> dict[str, int]:
        """The largest amounts (thousandths) that a kernel of the image may request. A missing slot has no limit."""
        return dict(Slots.parse(self.maximum))

    @property
    def accelerators(self) -> frozenset[str] | None:
        """The kinds of accelerators that the image can use, such as ``cuda``.

        None: the image has no label for it, so it may use any.
        """
        label = self.effective_labels.get(ACCELERATORS_LABEL)
        if label is None:
            return None
        kinds = {kind.strip().lower() for kind in str(label).split(",") if kind.strip()}
        return frozenset(kinds | {kind_of(slot) for slot in self.minimum_slots if is_accelerator(slot)})

    def can_use(self, slot: str) -> bool:
        """Return whether a kernel of the image can use this slot."""
        kinds = self.accelerators
        return kinds is None or not is_accelerator(slot) or kind_of(slot) in kinds

    @property
    def runs_programs(self) -> bool:
        """Whether batch sessions may run the image's programs. False if its label of features lacks ``batch``."""
        features = str(self.labels.get(FEATURES_LABEL, "")).split()
        return not features or "batch" in features

    @property
    def preferred_shm(self) -> str:
        """The default shared memory of a kernel, from the image's label; empty if the label is missing or invalid."""
        said = str(self.labels.get(SHM_LABEL, "")).strip()
        try:
            return said if said and parse_size(said, field="shm") > 0 else ""
        except UserError:
            return ""

    @property
    def is_on_nodes_only(self) -> bool:
        """Whether no registry has the image, so that sessions start only on agents that already have it."""
        return self.is_built_here or (self.is_customized and self.registry_id is None)

    @property
    def effective_labels(self) -> dict[str, str]:
        """The labels of the image, with the services that an administrator has set.

        If no agent has it as a container, its services are those of its native environment.
        """
        labels: dict[str, str] = self.labels
        if not labels and self.process_reference:
            labels = {SERVICES_LABEL: NATIVE_SERVICES}
        return labels | {SERVICES_LABEL: self.services} if self.services else labels

    @property
    def display_name(self) -> str:
        """The title, or else the name."""
        return self.title or self.name


class ImageAlias(models.Model):
    """Another name under which an image can be launched. No image and no other alias has the same name."""

    image = models.ForeignKey(Image, on_delete=models.CASCADE, related_name="aliases")
    name = models.CharField(max_length=128, unique=True)

    class Meta:
        ordering = ["name"]
        verbose_name_plural = Message("image aliases")

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Raise ValidationError if an image has this name."""
        if Image.objects.filter(name=self.name).exists():
            raise ValidationError({"name": Message("There is an image named {name} already.", name=self.name)})


class ImageOnAgent(models.Model):
    """An image reference that an agent can start without a pull."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="images")
    reference = models.CharField(max_length=255, db_index=True)
    digest = models.CharField(max_length=128, blank=True)
    architecture = models.CharField(max_length=32, blank=True)
    size_bytes = models.BigIntegerField(default=0)
    labels = models.JSONField(default=dict)
    is_unwanted = models.BooleanField(
        default=False, db_default=False, help_text=Message("Saved from a session and deleted: the agent removes it.")
    )

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "reference"], name="image_once_per_agent")]
        indexes = [
            models.Index(fields=["agent"], condition=models.Q(is_unwanted=True), name="image_to_remove"),
        ]

    def __str__(self) -> str:
        return f"{self.reference} on {self.agent_id}"


class ImageShare(models.Model):
    """The right of a project's members to start sessions from the image of one of them."""

    image = models.ForeignKey(Image, on_delete=models.CASCADE, related_name="shares")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="shared_images")
    created_at = models.DateTimeField(default=timezone.now)

    objects = ImageShareQuerySet.as_manager()

    class Meta:
        ordering = ["image", "project"]
        constraints = [models.UniqueConstraint(fields=["image", "project"], name="image_shared_once")]

    def __str__(self) -> str:
        return f"{self.image_id}/{self.project_id}"


class ImagePull(NodeJobRow):
    """One agent's part of a background job that pulls an image. Deleting the job deletes it."""

    class Status(models.TextChoices):
        WAITING = "WAITING", Message("waiting")
        PULLING = "PULLING", Message("pulling")
        DONE = "DONE", Message("there")
        FAILED = "FAILED", Message("failed")
        CANCELLED = "CANCELLED", Message("cancelled")

    job = models.ForeignKey(BackgroundJob, on_delete=models.CASCADE, related_name="pulls")
    image = models.ForeignKey(Image, on_delete=models.CASCADE, related_name="pulls")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="pulls")
    status = models.CharField(max_length=16, choices=Status, default=Status.WAITING)
    progress = models.FloatField(null=True, blank=True, help_text="From 0 to 1; empty: not known.")

    class Meta:
        ordering = ["agent__name"]
        constraints = [models.UniqueConstraint(fields=["job", "agent"], name="pull_once_per_job")]
        indexes = [
            models.Index(fields=["agent"], condition=models.Q(status__in=["WAITING", "PULLING"]), name="pull_not_over")
        ]

    def __str__(self) -> str:
        return f"{self.image} on {self.agent}: {self.status}"

    @property
    def is_over(self) -> bool:
        """Whether the pull has ended."""
        return self.status not in (self.Status.WAITING, self.Status.PULLING)

    @property
    def percent(self) -> int | None:
        """The progress from 0 to 100, or None if it is unknown."""
        return None if self.progress is None else int(100 * self.progress)
