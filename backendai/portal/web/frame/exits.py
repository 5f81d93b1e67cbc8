"""Short texts about the exit of a kernel's main process."""

from __future__ import annotations

from django.utils.translation import gettext_noop

from backendai.base.texts.translation import gettext as _
from backendai.domain.compute.models import Kernel
from backendai.domain.compute.reasons import ReasonKind, codes_of

_ON_ORDER = frozenset({*codes_of(ReasonKind.REQUEST, ReasonKind.IDLE, ReasonKind.LIMIT), "agent-drained"})
_STOPPED = {143: gettext_noop("stopped (SIGTERM)"), 137: gettext_noop("stopped (SIGKILL)")}


def was_stopped(kernel: Kernel) -> bool:
    """Return whether the exit code only shows that the process was ordered to end, which is no failure."""
    return kernel.exit_code in _STOPPED and kernel.status_reason in _ON_ORDER


def exit_words(kernel: Kernel) -> str:
    """Return the exit code as text; empty if there is none."""
    if kernel.exit_code is None:
        return ""
    if was_stopped(kernel):
        return _(_STOPPED[kernel.exit_code])
    return _("exit %(code)s") % {"code": kernel.exit_code}
