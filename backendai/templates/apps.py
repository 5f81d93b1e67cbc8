from django.apps import AppConfig


class TemplatesConfig(AppConfig):
    name = "backendai.templates"
    label = "templates"
