from django.apps import AppConfig


class ControllerConfig(AppConfig):
    name = "backendai.portal.loops"
    label = "controller"
