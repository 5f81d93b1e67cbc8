from django.apps import AppConfig


class SshGateConfig(AppConfig):
    name = "backendai.sshgate"
    label = "sshgate"
