from django.contrib import admin

from backendai.domain.activity.read_only import MadeElsewhere
from backendai.domain.templates.models import Template, TemplateVersion


@admin.register(Template)
class TemplateAdmin(MadeElsewhere):
    list_display = ["name", "scope", "owner", "project", "domain", "deprecated"]
    list_filter = ["scope"]
    list_select_related = ["owner", "project", "domain"]
    search_fields = ["name", "title"]


@admin.register(TemplateVersion)
class TemplateVersionAdmin(MadeElsewhere):
    list_display = ["template", "number", "author", "created_at"]
    list_select_related = ["template", "author"]
    search_fields = ["template__name"]
