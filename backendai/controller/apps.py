from django.apps import AppConfig


class ControllerConfig(AppConfig):
    name = "backendai.controller"
    label = "controller"
