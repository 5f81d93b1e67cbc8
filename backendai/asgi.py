"""HTTP and websockets under one ASGI server."""

import os

from channels.routing import ProtocolTypeRouter
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "backendai.settings.portal")
django_application = get_asgi_application()

from backendai.realtime.routing import websocket_application  # noqa: E402  (models need the set-up above)

application = ProtocolTypeRouter({"http": django_application, "websocket": websocket_application})
