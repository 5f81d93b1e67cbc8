from django import forms
from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.forms import AdminUserCreationForm, UserChangeForm
from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import Count, DurationField, OuterRef, Subquery
from django.utils import timezone

from backendai.accounts.amounts_field import AmountsField
from backendai.accounts.audited_admin import Audited
from backendai.accounts.duration_field import TimeSpanField, short_duration
from backendai.accounts.ends import end_credentials, refuse_to_lose_the_last_superadmin
from backendai.accounts.models import (
    AccessToken,
    Domain,
    KeyPair,
    Login,
    LoginCount,
    Membership,
    Project,
    ResourcePolicy,
    User,
)
from backendai.accounts.policy_rules import thousandths
from backendai.accounts.second_factors import reset_factors
from backendai.activity.read_only import MadeElsewhere, ReadOnly
from backendai.core.errors import UserError
from backendai.core.slots import format_amount

_LIMITS = ["policy", "share_weight"]
_ENDING = {"is_active", "role", "is_superuser", "domain"}  # a change of these ends what lets somebody in
# Roles say who may do what; beside resource groups these would only mislead.
admin.site.unregister(Group)

_WORDS = {
    "unnamed_slots": ("Of every other slot", "For slots that are not named above."),
    "max_sessions": ("Most sessions at once", "That hold slots. Empty: unlimited; 0: none may start."),
    "max_pending_sessions": ("Most sessions waiting", "A launch beyond it is refused. Empty: unlimited."),
    "max_priority": ("Highest priority", "0 to 100; sessions usually have 10. Empty: up to 100."),
    "max_kernels_per_session": ("Most kernels in one session", "Empty: up to 16."),
    "max_session_lifetime": (
        "Longest run", "From a session's start; then it ends. What runs already keeps its end. Empty: unlimited."
    ),
    "max_concurrent_logins": (
        "Most browsers signed in", "Of a user, by the user's and the domain's policy. Empty: unlimited."
    ),
}  # fmt: skip


class PolicyForm(forms.ModelForm):
    slots = AmountsField(
        label="Most held at once",
        help_text="Over all resource groups, as cpu=8, mem=64g, cuda.device=2. A slot with 0: none of it.",
    )
    max_pending_slots = AmountsField(
        label="Most asked for by waiting sessions", help_text="All that wait together; a launch beyond it is refused."
    )

    class Meta:
        model = ResourcePolicy
        fields = [
            "name", "slots", "unnamed_slots", "max_sessions", "max_pending_sessions", "max_pending_slots",
            "max_priority", "max_kernels_per_session", "max_session_lifetime", "max_concurrent_logins",
        ]  # fmt: skip

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        for name, (label, text) in _WORDS.items():
            self.fields[name].label, self.fields[name].help_text = label, text


@admin.register(ResourcePolicy)
class PolicyAdmin(Audited):
    """Limits for whoever has this policy. Its own list names the limits as people read them."""

    audit_name = "resource-policy"
    form = PolicyForm
    formfield_overrides = {DurationField: {"form_class": TimeSpanField}}
    list_display = [
        "name", "held_at_once", "max_sessions", "max_pending_sessions", "max_priority", "longest_run", "holders",
    ]  # fmt: skip
    search_fields = ["name"]
    fieldsets = [
        (
            None,
            {
                "fields": ["name"],
                "description": "Key pairs, users, projects and domains get a policy on their own pages. Where several "
                "hold, the tightest counts.",
            },
        ),
        ("Held at once", {"fields": ["slots", "unnamed_slots", "max_sessions"]}),
        ("Waiting at once", {"fields": ["max_pending_sessions", "max_pending_slots"]}),
        ("One session", {"fields": ["max_priority", "max_kernels_per_session", "max_session_lifetime"]}),
        ("One user", {"fields": ["max_concurrent_logins"]}),
    ]

    def get_queryset(self, request):
        numbers = {f"number_of_{kind}": _number_with_policy(model) for kind, model in _HOLDERS.items()}
        return super().get_queryset(request).annotate(**numbers)

    @admin.display(description="held at once")
    def held_at_once(self, policy):
        amounts = thousandths(policy.slots, field="slots")
        named = [f"{name} {format_amount(name, amount)}" for name, amount in sorted(amounts.items())]
        others = ["nothing else"] if policy.unnamed_slots == ResourcePolicy.Unnamed.LIMITED else []
        return ", ".join(named + others) or "unlimited"

    @admin.display(description="holds for")
    def holders(self, policy):
        numbers = {kind.replace("_", " "): getattr(policy, f"number_of_{kind}") for kind in _HOLDERS}
        return ", ".join(f"{number} {kind}" for kind, number in numbers.items() if number) or "nobody"

    @admin.display(description="longest run", ordering="max_session_lifetime")
    def longest_run(self, policy):
        return short_duration(policy.max_session_lifetime) if policy.max_session_lifetime else None


_HOLDERS = {"key_pairs": KeyPair, "users": User, "projects": Project, "domains": Domain}


def _number_with_policy(model):
    # Not Count over four joins: that would multiply every user with every key pair.
    rows = model.objects.filter(policy=OuterRef("pk")).order_by().values("policy")
    return Subquery(rows.annotate(number=Count("pk")).values("number"))


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
    readonly_fields = ["created_at", "last_login"]
    filter_horizontal = []
    fieldsets = [
        (None, {"fields": ["email", "full_name", "password"]}),
        ("Access", {"fields": ["role", "is_superuser", "domain", "is_active"]}),
        ("Limits", {"fields": [*_LIMITS]}),
        ("Times", {"fields": ["created_at", "last_login"]}),
    ]
    add_fieldsets = [(None, {"fields": ["email", "usable_password", "password1", "password2", "role", "domain"]})]
    inlines = [MembershipInline]
    actions = ["reset_second_factors"]

    @admin.action(description="Take the second factors away (they are lost)")
    def reset_second_factors(self, request, queryset):
        number = sum(reset_factors(request.user.pk, user, now=timezone.now()) > 0 for user in queryset)
        self.message_user(request, f"{number} of {queryset.count()} had second factors, and have none now.")

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
class MembershipAdmin(admin.ModelAdmin):
    list_display = ["user", "project", "created_at"]
    list_filter = ["project"]
    search_fields = ["user__email"]
    list_select_related = ["user", "project"]


@admin.register(KeyPair)
class KeyPairAdmin(Audited):
    audit_name = "key-pair"
    list_display = ["access_key", "user", "is_active", "policy", "created_at"]
    search_fields = ["access_key", "user__email"]
    list_select_related = ["user", "policy"]


@admin.register(AccessToken)
class AccessTokenAdmin(admin.ModelAdmin):
    list_display = ["name", "hint", "user", "last_used_at", "expires_at"]
    search_fields = ["user__email", "name"]
    list_select_related = ["user"]
    exclude = ["digest"]
    readonly_fields = ["user", "hint", "created_at", "last_used_at"]

    def has_add_permission(self, request):
        return False  # the text of a token made here could be shown to nobody


@admin.register(Login)
class LoginAdmin(ReadOnly):
    list_display = ["user", "method", "address", "browser", "created_at"]
    search_fields = ["user__email", "address"]
    list_select_related = ["user"]


@admin.register(LoginCount)
class LoginCountAdmin(MadeElsewhere):
    list_display = ["key", "attempts", "last_at", "blocked_until"]
