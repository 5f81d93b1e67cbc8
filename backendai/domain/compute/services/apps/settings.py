"""Stores titles and arguments that users set for apps."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from django.db import transaction

from backendai.base.core.app_arguments import allowed_arguments, check_values, command_arguments
from backendai.base.core.errors import Conflict, NotFound, UserError
from backendai.domain.accounts.acting import both_names
from backendai.domain.accounts.models import User
from backendai.domain.activity.services import audit
from backendai.domain.compute.models import LONGEST_APP_TITLE, AppSetting, ComputeSession
from backendai.domain.compute.services.apps.of_session import App, apps_of, main_kernel, settings_of

CHANGED = "app.change"


def change_app(user: User, session: ComputeSession, name: str, *, title: str, arguments: Mapping[str, str]) -> App:
    """Set an app's title (empty: the usual title) and arguments, and return the app.

    They apply from the app's next start. The caller checks that the user may see the session. Raises NotFound; Conflict
    if the session has ended; UserError for an invalid title or argument.
    """
    found = find_app(session, name)
    if session.is_terminal:
        raise Conflict("The session has ended.", code="session-ended")
    title = " ".join(title.split())
    if len(title) > LONGEST_APP_TITLE or not title.isprintable():
        raise UserError(
            "The name of an app has at most {limit} characters ({number} given).",
            limit=LONGEST_APP_TITLE,
            number=len(title),
            field="title",
            code="invalid-name",
        )
    changed = check_values(arguments, allowed_arguments(session.image.effective_labels, name))
    values = {"title": "" if title == found.usual_title else title, "arguments": changed}
    with transaction.atomic():
        AppSetting.objects.update_or_create(session=session, service=name, defaults=values)
        about = {"service": name, "title": values["title"], "arguments": sorted(changed)}
        audit(user.pk, CHANGED, "session", [session.pk], **about, **both_names(user, session.owner))
    return find_app(session, name)


def find_app(session: ComputeSession, name: str) -> App:
    """Return the session's app with this name, including the title and the arguments that users have set. Raises
    NotFound."""
    for app in apps_of(session, main_kernel(session), settings_of(session)):
        if app.name == name:
            return app
    raise NotFound("This session has no app named {name}.", name=name[:32], code="no-such-app")


def arguments_for(session_id: UUID | None, service: str) -> tuple[str, ...]:
    """Return the command-line arguments of a service that its image lets users set.

    Each has the value that users have set, else its default. Empty without a session or allowed arguments. At most two
    queries.
    """
    session = ComputeSession.objects.select_related("image").filter(pk__in=[session_id]).first()
    allowed = allowed_arguments(session.image.effective_labels, service) if session else {}
    if session is None or not allowed:
        return ()
    own = session.app_settings.filter(service=service).first()
    set_now = {name: value for name, value in own.arguments.items() if name in allowed} if own else {}
    return command_arguments(allowed | set_now)
