from django.contrib import admin, messages
from django.db import models, transaction
from django.db.models import Count, Q

from backendai.domain.accounts.audited_admin import Audited
from backendai.domain.accounts.policies.duration_field import TimeSpanField, short_duration
from backendai.domain.activity.read_only import MadeElsewhere, ReadOnly
from backendai.domain.activity.services import audit
from backendai.domain.cluster.groups.form import GroupForm, has_options
from backendai.domain.cluster.models import (
    Agent,
    Announcement,
    IdleBinding,
    IdleChecker,
    JoinToken,
    PassLease,
    Reachability,
    ResourceGroup,
    SiteSetting,
    SlotType,
)


@admin.register(ResourceGroup)
class ResourceGroupAdmin(Audited):
    """Resource groups. Saved rules apply from the next scheduler pass."""

    audit_name = "resource-group"
    form = GroupForm
    formfield_overrides = {models.DurationField: {"form_class": TimeSpanField}}
    list_display = [
        "name",
        "is_active",
        "sequence",
        "overtaking",
        "selection",
        "longest_wait",
        "agents_alive",
        "open_to",
    ]
    filter_horizontal = ["domains", "projects", "key_pairs"]
    search_fields = ["name"]
    fieldsets = [
        (
            None,
            {
                "fields": [
                    "name", "description", "is_active", "is_default", "allowed_session_types", "session_defaults",
                ],
            },
        ),
        (
            "Queue",
            {
                "fields": [
                    "sequence", "usage_half_life", "retries_to_skip", "overtaking_limit", "backfill", "preempt_after",
                ],
                "description": "Who starts next. Sessions of a higher priority always come first; the sequence orders "
                "those of the same. A change holds from the next pass on, within two seconds.",
            },
        ),
        (
            "Agents",
            {
                "fields": [
                    "selection", "slot_order", "max_kernels_per_agent", "device_allocation", "allow_fragmentation",
                ],
                "description": "Where it starts.",
            },
        ),
        (
            "Queue limits",
            {
                "fields": ["pending_timeout", ("give_up_after", "on_give_up")],
                "description": "Looked after every 30 seconds.",
            },
        ),
        (
            "Start and termination timeouts",
            {
                "fields": [
                    "pull_timeout", "create_timeout", "terminate_timeout", "max_retries", "agent_lost_grace",
                    "app_domain",
                ],
            },
        ),
        ("Open to", {"fields": ["is_public", "domains", "projects", "key_pairs"]}),
        ("Options of strategies", {"fields": ["strategy_options"], "classes": ["collapse"]}),
    ]  # fmt: skip

    def get_fieldsets(self, request, obj=None):
        """Return the fieldsets; without options of strategies if the form has none."""
        found = super().get_fieldsets(request, obj)
        return found if has_options() else [each for each in found if "strategy_options" not in each[1]["fields"]]

    def get_queryset(self, request):
        alive = Count("agents", filter=Q(agents__status=Agent.Status.ALIVE), distinct=True)
        listed = Count("agents", filter=~Q(agents__status=Agent.Status.TERMINATED), distinct=True)
        return super().get_queryset(request).annotate(alive_count=alive, agent_count=listed)

    @admin.display(description="others may pass")
    def overtaking(self, group):
        ways = [f"after {group.retries_to_skip} tries"] if group.retries_to_skip else []
        ways += ["backfill"] if group.backfill else []
        return ", ".join(ways) or "never"

    @admin.display(description="longest wait", ordering="pending_timeout")
    def longest_wait(self, group):
        return short_duration(group.pending_timeout) if group.pending_timeout else "unlimited"

    @admin.display(description="agents alive")
    def agents_alive(self, group):
        return f"{group.alive_count} of {group.agent_count}"

    @admin.display(description="open to", ordering="is_public")
    def open_to(self, group):
        return "everybody" if group.is_public else "those it names"


@admin.register(Agent)
class AgentAdmin(Audited):
    audit_name = "agent"
    list_display = ["name", "resource_group", "status", "schedulable", "last_seen_at"]
    list_select_related = ["resource_group"]
    actions = ["keep_new_sessions_away", "take_sessions_again"]
    list_filter = ["resource_group", "status", "schedulable"]
    search_fields = ["name"]
    exclude = ["token_digest"]
    readonly_fields = [
        "status", "backend", "architecture", "version", "boot_id", "gateway_url", "capacity", "devices", "live",
        "notes", "reserved", "images_digest", "drain_started_at", "drain_ends_at", "drain_kernels", "revoked_at",
        "last_seen_at", "lost_at", "returned_at", "created_at",
    ]  # fmt: skip

    def has_add_permission(self, request):
        return False  # agents introduce themselves with a join token

    def has_delete_permission(self, request, obj=None):
        return False  # their history stays; one that is gone for good is said to be on its page

    @admin.action(description="Keep new sessions away from selected agents")
    def keep_new_sessions_away(self, request, agents):
        _set_schedulable(request, agents, to=False)

    @admin.action(description="Let selected agents take sessions again")
    def take_sessions_again(self, request, agents):
        _set_schedulable(request, agents, to=True)


def _set_schedulable(request, agents, *, to):
    with transaction.atomic():
        changed = list(agents.exclude(schedulable=to))
        for agent in changed:
            audit(
                request.user.pk, "agent.change", "agent", [agent.pk], name=agent.name,
                changes={"schedulable": [not to, to]},
            )  # fmt: skip
        Agent.objects.filter(pk__in=[agent.pk for agent in changed]).update(schedulable=to)
    messages.success(
        request, f"{len(changed)} agent{'s' if len(changed) != 1 else ''} changed; what runs there goes on."
    )


@admin.register(JoinToken)
class JoinTokenAdmin(Audited):
    audit_name = "join-token"
    list_display = ["hint", "resource_group", "agent", "name_prefix", "is_reusable", "used_at", "expires_at"]
    list_select_related = ["resource_group", "agent"]
    exclude = ["digest"]
    readonly_fields = ["hint", "agent", "created_by"]

    def has_add_permission(self, request):
        return False  # made by ``manage.py create_join_token``, which can show the text


@admin.register(PassLease)
class PassLeaseAdmin(MadeElsewhere):
    list_display = ["name", "owner", "until", "finished_at"]


@admin.register(Reachability)
class ReachabilityAdmin(ReadOnly):
    list_display = ["since", "noted_at"]


@admin.register(SlotType)
class SlotTypeAdmin(Audited):
    audit_name = "slot-type"
    list_display = ["name", "display_name", "kind", "unit", "step", "rank", "is_enabled"]
    list_filter = ["kind", "is_enabled"]
    search_fields = ["name", "display_name"]
    readonly_fields = ["created_at"]


@admin.register(SiteSetting)
class SiteSettingAdmin(MadeElsewhere):
    list_display = ["name", "value", "changed_at", "changed_by"]
    list_select_related = ["changed_by"]


@admin.register(Announcement)
class AnnouncementAdmin(Audited):
    audit_name = "announcement"
    list_display = ["text", "tone", "starts_at", "ends_at"]
    list_filter = ["tone"]
    readonly_fields = ["created_at"]


class IdleBindingInline(admin.TabularInline):
    model = IdleBinding
    fields = ["resource_group", "project", "applies"]
    extra = 1


@admin.register(IdleChecker)
class IdleCheckerAdmin(Audited):
    """Idle checkers. Saved rules apply from the next check, within seconds, and cancel warnings by earlier rules."""

    audit_name = "idle-checker"
    formfield_overrides = {models.DurationField: {"form_class": TimeSpanField}}
    inlines = [IdleBindingInline]
    list_display = ["name", "kind", "limit", "warning", "is_active"]
    list_filter = ["kind", "is_active"]
    search_fields = ["name", "description"]
