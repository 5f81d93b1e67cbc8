from django import forms
from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.forms import AdminUserCreationForm

from backendai.accounts.models import AccessToken, Domain, KeyPair, LoginCount, Membership, Project, User


class MembershipInline(admin.TabularInline):
    model = Membership
    extra = 0
    autocomplete_fields = ["user", "project"]


class NewUserForm(AdminUserCreationForm):
    class Meta:
        model = User
        fields = ["email"]
        field_classes = {"email": forms.EmailField}


@admin.register(User)
class PersonAdmin(UserAdmin):
    add_form = NewUserForm
    ordering = ["email"]
    list_display = ["email", "full_name", "role", "domain", "is_active"]
    list_filter = ["role", "is_active", "domain"]
    search_fields = ["email", "full_name"]
    readonly_fields = ["created_at", "last_login"]
    filter_horizontal = []
    fieldsets = [
        (None, {"fields": ["email", "full_name", "password"]}),
        ("Access", {"fields": ["role", "is_superuser", "domain", "is_active"]}),
        ("Times", {"fields": ["created_at", "last_login"]}),
    ]
    add_fieldsets = [(None, {"fields": ["email", "usable_password", "password1", "password2", "role", "domain"]})]
    inlines = [MembershipInline]


@admin.register(Domain)
class DomainAdmin(admin.ModelAdmin):
    list_display = ["name", "is_active", "created_at"]


@admin.register(Project)
class ProjectAdmin(admin.ModelAdmin):
    list_display = ["name", "domain", "is_active", "created_at"]
    list_filter = ["domain", "is_active"]
    search_fields = ["name"]
    inlines = [MembershipInline]


@admin.register(Membership)
class MembershipAdmin(admin.ModelAdmin):
    list_display = ["user", "project", "created_at"]
    list_filter = ["project"]
    search_fields = ["user__email"]
    list_select_related = ["user", "project"]


@admin.register(KeyPair)
class KeyPairAdmin(admin.ModelAdmin):
    list_display = ["access_key", "user", "is_active", "created_at"]
    search_fields = ["access_key", "user__email"]
    list_select_related = ["user"]


@admin.register(AccessToken)
class AccessTokenAdmin(admin.ModelAdmin):
    list_display = ["name", "hint", "user", "last_used_at", "expires_at"]
    search_fields = ["user__email", "name"]
    list_select_related = ["user"]
    exclude = ["digest"]
    readonly_fields = ["user", "hint", "created_at", "last_used_at"]

    def has_add_permission(self, request):
        return False  # the text of a token made here could be shown to nobody


@admin.register(LoginCount)
class LoginCountAdmin(admin.ModelAdmin):
    list_display = ["key", "attempts", "last_at", "blocked_until"]

    def has_add_permission(self, request):
        return False

    def has_change_permission(self, request, obj=None):
        return False
