from django.apps import AppConfig


class AgentConfig(AppConfig):
    name = "backendai.agent"
