"""Image registries."""

from __future__ import annotations

from django.core.validators import RegexValidator
from django.db import models
from django.utils import timezone

from backendai.base.core.messages import Message
from backendai.domain.accounts.models import Domain
from backendai.domain.accounts.secret_box import seal, unseal

# No path, no query and no account: what is asked for stands after it.
url_rule = RegexValidator(
    r"^https?://([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(:[0-9]{1,5})?\Z",
    Message("Write https:// and the host, with a port if need be, and nothing behind it."),
)
name_rule = RegexValidator(
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,49}\Z", Message("Use letters, digits, dot, dash and underscore.")
)


class Registry(models.Model):
    """A server from which images are pulled.

    Its passwords are stored encrypted and never logged. An agent gets an account with its password only for a pull, or
    for a push while it saves an image.
    """

    class Kind(models.TextChoices):
        DOCKER = "docker", "Docker Registry"
        HARBOR = "harbor", "Harbor"

    name = models.CharField(max_length=50, unique=True, validators=[name_rule])
    url = models.CharField(
        max_length=255, validators=[url_rule], help_text=Message("For example https://cr.example.org:5000.")
    )
    kind = models.CharField(max_length=16, choices=Kind, default=Kind.DOCKER)
    projects = models.CharField(
        max_length=1024,
        blank=True,
        help_text=Message("Projects or namespaces to scan, separated by spaces; empty: all."),
    )
    repositories = models.TextField(
        blank=True,
        help_text=Message("One per line, for a registry without a catalogue; empty: read its catalogue."),
    )
    other_hosts = models.CharField(
        max_length=1024,
        blank=True,
        help_text=Message("Additional hosts for tokens and blobs, separated by spaces: auth.example.org."),
    )
    username = models.CharField(max_length=128, blank=True)
    sealed_password = models.TextField(blank=True, editable=False)
    push_username = models.CharField(
        max_length=128,
        blank=True,
        db_default="",
        help_text=Message("An account that can push and delete; empty: the account above."),
    )
    sealed_push_password = models.TextField(blank=True, editable=False, db_default="")
    verify_tls = models.BooleanField(default=True, help_text=Message("If off, its certificate is not checked."))
    enables_new = models.BooleanField(default=False, help_text=Message("New images of it can be used at once."))
    is_enabled = models.BooleanField(default=True, help_text=Message("If off, it is not scanned."))
    takes_pushes = models.BooleanField(
        default=False,
        db_default=False,
        help_text=Message("Push customized images here, with this account."),
    )
    is_global = models.BooleanField(
        default=True, help_text=Message("If on, all domains can use its images; if off, only the listed ones.")
    )
    domains = models.ManyToManyField(Domain, blank=True, related_name="registries")
    scanned_at = models.DateTimeField(null=True, blank=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["name"]
        verbose_name_plural = "registries"

    def __str__(self) -> str:
        return self.name

    @property
    def host(self) -> str:
        """The host, with its port if there is one."""
        return self.url.partition("://")[2]

    @property
    def password(self) -> str:
        """The decrypted password; empty if there is none or its key is lost."""
        return unseal(self.sealed_password)

    @property
    def push_password(self) -> str:
        """The decrypted password of the account that pushes images; empty if there is none or its key is lost."""
        return unseal(self.sealed_push_password)

    def set_push_password(self, password: str) -> None:
        """Encrypt and set the password of the account that pushes images, without saving; an empty one removes it."""
        self.sealed_push_password = seal(password) if password else ""

    def set_password(self, password: str) -> None:
        """Encrypt and set the password, without saving; an empty one removes it."""
        self.sealed_password = seal(password) if password else ""
