from django.apps import AppConfig


class RealtimeConfig(AppConfig):
    name = "backendai.realtime"
    label = "realtime"
