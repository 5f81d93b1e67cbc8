"""Pages and REST under a WSGI server."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "backendai.settings.portal")
application = get_wsgi_application()
