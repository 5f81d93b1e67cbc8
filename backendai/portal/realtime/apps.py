from django.apps import AppConfig


class RealtimeConfig(AppConfig):
    name = "backendai.portal.realtime"
    label = "realtime"
