from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from django import forms
from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.forms import AdminUserCreationForm, UserChangeForm
from django.contrib.auth.models import Group
from django.db import transaction
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.base.core.slots import limit_text
from backendai.domain.accounts.audited_admin import Audited
from backendai.domain.accounts.models import (
    AccessToken,
    BootstrapScript,
    Domain,
    Dotfile,
    Invitation,
    KeyPair,
    Login,
    LoginCount,
    Membership,
    PolicyDefault,
    Preference,
    Project,
    ResourcePolicy,
    SeenSignature,
    SshKey,
    User,
)
from backendai.domain.accounts.policies.applicable import held_text, holders_text
from backendai.domain.accounts.policies.duration_field import short_duration
from backendai.domain.accounts.policies.form import PolicyForm
from backendai.domain.accounts.sign_in.revocation import end_credentials, refuse_to_lose_the_last_superadmin
from backendai.domain.accounts.sign_in.second_factors import reset_factors
from backendai.domain.activity.read_only import MadeElsewhere, ReadOnly

_LIMITS = ["policy", "share_weight"]
_ENDING = {"is_active", "role", "is_superuser", "domain"}  # a change of these ends what lets somebody in
# Roles say who may do what; beside resource groups these would only mislead.
admin.site.unregister(Group)
# Addresses are the user's own field here, and the provider of identities is a setting.
for unused in (EmailAddress, SocialApp, SocialToken):
    admin.site.unregister(unused)
admin.site.unregister(Authenticator)
admin.site.unregister(SocialAccount)


@admin.register(ResourcePolicy)
class PolicyAdmin(Audited):
    """Resource policies. The list shows their limits in words."""

    audit_name = "resource-policy"
    form = PolicyForm
    empty_value_display = limit_text(None)
    list_display = [
        "name", "held_at_once", "max_sessions", "max_pending_sessions", "max_priority", "longest_run", "holders",
    ]  # fmt: skip
    search_fields = ["name"]
    fieldsets = [
        (
            None,
            {
                "fields": ["name"],
                "description": "Key pairs, users, projects and domains get a policy on their own pages. If several "
                "apply, the tightest limit counts.",
            },
        ),
        ("Running sessions together", {"fields": ["slots", "unnamed_slots", "max_sessions"]}),
        ("Stopped sessions", {"fields": ["max_stopped_sessions"]}),
        ("Pending sessions together", {"fields": ["max_pending_sessions", "max_pending_slots"]}),
        (
            "One session",
            {"fields": ["max_priority", "max_kernels_per_session", "max_session_lifetime", "required_labels"]},
        ),
        ("One user", {"fields": ["max_concurrent_logins", "max_customized_images", "max_system_sessions"]}),
        ("Inference endpoints", {"fields": ["max_endpoints", "max_replicas_per_endpoint"]}),
        ("Folders", {"fields": ["max_folders", "max_folder_bytes"]}),
        ("New ones", {"fields": ["default_for"]}),
    ]

    def get_queryset(self, request):
        return ResourcePolicy.objects.with_holders()

    @admin.display(description="held at once")
    def held_at_once(self, policy):
        return held_text(policy)

    @admin.display(description="holds for")
    def holders(self, policy):
        return holders_text(policy)

    @admin.display(description="longest run", ordering="max_session_lifetime")
    def longest_run(self, policy):
        return short_duration(policy.max_session_lifetime) if policy.max_session_lifetime else None


@admin.register(PolicyDefault)
class PolicyDefaultAdmin(Audited):
    audit_name = "policy-default"
    list_display = ["holder", "policy"]
    list_select_related = ["policy"]


class MembershipInline(admin.TabularInline):
    model = Membership
    extra = 0
    autocomplete_fields = ["user", "project"]


class PersonForm(UserChangeForm):
    def clean(self):
        found = super().clean() or {}
        if not (found.get("is_active") and found.get("role") == User.Role.SUPERADMIN):
            try:
                refuse_to_lose_the_last_superadmin(self.instance)
            except UserError as error:
                raise forms.ValidationError(error.message, code=error.code) from error
        return found


class NewUserForm(AdminUserCreationForm):
    class Meta:
        model = User
        fields = ["email"]
        field_classes = {"email": forms.EmailField}


@admin.register(User)
class PersonAdmin(Audited, UserAdmin):
    audit_name = "user"
    audited_fields = [*_LIMITS, "role", "is_superuser", "domain", "is_active"]
    form = PersonForm
    add_form = NewUserForm
    ordering = ["email"]
    list_display = ["email", "full_name", "role", "domain", "is_active"]
    list_filter = ["role", "is_active", "domain"]
    search_fields = ["email", "full_name"]
    readonly_fields = ["created_at", "last_login", "purged_at"]
    filter_horizontal = []
    fieldsets = [
        (None, {"fields": ["email", "full_name", "password"]}),
        ("Access", {"fields": ["role", "is_superuser", "domain", "is_active"]}),
        ("Limits", {"fields": [*_LIMITS]}),
        ("Times", {"fields": ["created_at", "last_login", "purged_at"]}),
    ]
    add_fieldsets = [(None, {"fields": ["email", "usable_password", "password1", "password2", "role", "domain"]})]
    inlines = [MembershipInline]
    actions = ["reset_second_factors"]

    @admin.action(description="Take the second factors away (they are lost)")
    def reset_second_factors(self, request, queryset):
        number = sum(reset_factors(request.user.pk, user, now=timezone.now()) > 0 for user in queryset)
        self.message_user(request, f"{number} of {queryset.count()} had second factors, and have none now.")

    def has_delete_permission(self, request, obj=None):
        # Anyone who rules the platform is demoted or deactivated first, where it is checked that somebody else does.
        rules = obj is not None and obj.is_superadmin and obj.is_active
        return not rules and super().has_delete_permission(request, obj)

    def save_model(self, request, obj, form, change):
        with transaction.atomic():
            super().save_model(request, obj, form, change)
            if change and _ENDING & set(form.changed_data):
                end_credentials(obj, now=timezone.now())


@admin.register(Domain)
class DomainAdmin(Audited):
    audit_name = "domain"
    list_display = ["name", "is_active", "policy", "share_weight", "created_at"]
    list_select_related = ["policy"]


@admin.register(Project)
class ProjectAdmin(Audited):
    audit_name = "project"
    list_display = ["name", "domain", "is_active", "policy", "share_weight", "created_at"]
    list_select_related = ["domain", "policy"]
    list_filter = ["domain", "is_active"]
    search_fields = ["name"]
    inlines = [MembershipInline]


@admin.register(Membership)
class MembershipAdmin(Audited):
    audit_name = "membership"
    list_display = ["user", "project", "role", "created_at"]
    list_filter = ["role", "project"]
    search_fields = ["user__email"]
    list_select_related = ["user", "project"]


@admin.register(Invitation)
class InvitationAdmin(MadeElsewhere):
    list_display = ["email", "project", "role", "invited_by", "expires_at", "accepted_at", "revoked_at"]
    search_fields = ["email"]
    list_filter = ["project__domain"]
    list_select_related = ["project", "invited_by"]
    exclude = ["digest"]


@admin.register(KeyPair)
class KeyPairAdmin(Audited):
    audit_name = "key-pair"
    list_display = ["access_key", "name", "user", "is_active", "is_main", "policy", "rate_limit", "last_used_at"]
    list_filter = ["is_active"]
    search_fields = ["access_key", "name", "user__email"]
    list_select_related = ["user", "policy"]
    readonly_fields = ["last_used_at"]


@admin.register(AccessToken)
class AccessTokenAdmin(Audited):
    audit_name = "token"
    list_display = ["name", "hint", "scopes", "user", "last_used_at", "expires_at"]
    search_fields = ["user__email", "name"]
    list_select_related = ["user"]
    exclude = ["digest"]
    # What a token may do was agreed when it was made.
    readonly_fields = ["user", "hint", "scopes", "created_at", "last_used_at"]

    def has_add_permission(self, request):
        return False  # the text of a token made here could be shown to nobody


@admin.register(Login)
class LoginAdmin(ReadOnly):
    list_display = ["user", "method", "address", "browser", "created_at"]
    search_fields = ["user__email", "address"]
    list_select_related = ["user"]


@admin.register(Authenticator)
class FactorAdmin(ReadOnly):
    """Second factors, without their secrets, read-only. The page of users resets them."""

    list_display = ["user", "type", "created_at", "last_used_at"]
    list_filter = ["type"]
    search_fields = ["user__email"]
    list_select_related = ["user"]
    exclude = ["data"]


@admin.register(SocialAccount)
class IdentityAdmin(MadeElsewhere, Audited):
    """The links between accounts and the identities of a provider.

    Without its link, the next sign-in counts as the first.
    """

    audit_name = "identity"
    list_display = ["user", "uid", "provider", "date_joined", "last_login"]
    search_fields = ["user__email", "uid"]
    list_select_related = ["user"]
    exclude = ["extra_data"]


@admin.register(LoginCount)
class LoginCountAdmin(MadeElsewhere):
    list_display = ["key", "attempts", "last_at", "blocked_until"]


@admin.register(SshKey)
class SshKeyAdmin(MadeElsewhere):
    list_display = ["name", "user", "fingerprint", "created_at"]
    search_fields = ["user__email", "fingerprint"]
    list_select_related = ["user"]


@admin.register(Dotfile)
class DotfileAdmin(MadeElsewhere):
    list_display = ["path", "permission", "user", "project", "domain", "updated_at"]
    list_filter = ["domain", "project"]
    search_fields = ["path", "user__email"]
    list_select_related = ["user", "project", "domain"]
    exclude = ["content"]  # people keep secrets there


@admin.register(BootstrapScript)
class BootstrapScriptAdmin(MadeElsewhere):
    list_display = ["user", "updated_at"]
    search_fields = ["user__email"]
    list_select_related = ["user"]
    exclude = ["content"]


@admin.register(SeenSignature)
class SeenSignatureAdmin(MadeElsewhere):
    list_display = ["signature", "expires_at"]


@admin.register(Preference)
class PreferenceAdmin(MadeElsewhere):
    list_display = ["user", "name"]
    list_filter = ["name"]
    search_fields = ["user__email"]
    list_select_related = ["user"]
