"""Pages and REST under a WSGI server."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "backendai.settings.portal")
application = get_wsgi_application()

from backendai.portal.http.garbage_collection import set_aside_what_stays  # noqa: E402  (it needs the set-up above)

set_aside_what_stays()
