"""Limits of holders (key pair, user, project, domain) during a pass, updated with each placement."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from backendai.base.core.messages import Message
from backendai.base.core.slots import amount_in_words, decimal_text, format_amount
from backendai.scheduler.plan import Reason
from backendai.scheduler.snapshot import Holder, LimitView, Networks

Amounts = tuple[tuple[str, int], ...]  # slot, thousandths
TOO_MANY_SESSIONS, SLOT_LIMIT = "too-many-sessions", "slot-limit"
LIMIT_CODES = frozenset({TOO_MANY_SESSIONS, SLOT_LIMIT})

_SCOPES = {
    "key-pair": Message("Key pair"),
    "user": Message("User"),
    "project": Message("Project"),
    "domain": Message("Domain"),
}


class Limits:
    """The limits of all holders, and what is left of them after this pass's placements."""

    def __init__(self, limits: Mapping[str, LimitView], networks: Networks | None = None) -> None:
        self._networks = networks
        self._networks_left: float = inf if networks is None else networks.left
        self._accounts = {key: _Account(limit) for key, limit in limits.items()}
        self._by_holder: dict[int, _Accounts] = {}  # by ``id()``: the snapshot keeps its holders alive

    def sessions_reason(self, holder: Holder) -> Reason | None:
        """Return the limit that keeps the holder from starting another session now, as a reason; None if none does."""
        if not self._accounts:
            return None
        for account in self._of(holder).accounts:
            if account.sessions >= account.most_sessions:
                return account.sessions_reason()
        return None

    def slots_reason(self, holder: Holder, asked: Amounts) -> Reason | None:
        """Return the limit on a slot that a session with this request would exceed, as a reason; None if it exceeds
        none. Limits that the session exceeds by itself are returned first, then limits that other sessions have used
        up."""
        if not self._accounts:
            return None
        accounts = self._of(holder)
        for account in accounts.accounts:
            if account.exceeded(asked):
                return accounts.slots_reason(asked)
        return None

    def networks_reason(self) -> Reason | None:
        """Return why sessions that need a network across agents wait: all networks are in use. None if one is free."""
        if self._networks is None or self._networks_left > 0:
            return None
        most = self._networks.most
        message = Message(
            "All {most} networks for sessions over several agents are in use; it waits until one of those "
            "sessions ends.",
            most=most,
        )
        return Reason("no-cluster-network", message, {"limit": most, "used": most}, never=most == 0)

    def count_network(self) -> None:
        """Count a placed session that uses a network across agents."""
        self._networks_left -= 1

    def count(self, holder: Holder, asked: Amounts) -> None:
        """Count a placed session against the limits of its holders."""
        if self._accounts:
            for account in self._of(holder).accounts:
                account.count(asked)

    def _of(self, holder: Holder) -> _Accounts:
        accounts = self._by_holder.get(id(holder))
        if accounts is None:
            known = tuple(self._accounts[key] for key in holder.keys if key in self._accounts)
            accounts = self._by_holder[id(holder)] = _Accounts(known)
        return accounts


class _Account:
    """The limits of one holder and what is left of them. ``left``: the amounts left of slots that the policy names.
    ``unnamed``: the amount left of each other slot, 0 or infinite."""

    def __init__(self, limit: LimitView) -> None:
        self.limit = limit
        self.who = Message("{scope} {name}", scope=_SCOPES.get(limit.scope, limit.scope), name=limit.name)
        self.most: dict[str, int] = {**limit.slots, **dict.fromkeys(limit.forbidden, 0)}
        self.left: dict[str, int] = {name: most - limit.used[name] for name, most in self.most.items()}
        self.unnamed: float = 0 if limit.unnamed_limited else inf
        self.most_sessions: float = inf if limit.max_sessions is None else limit.max_sessions
        self.sessions = limit.sessions

    def exceeded(self, asked: Amounts) -> str:
        """Return the first slot of which these amounts exceed the rest of the limit; empty if there is none."""
        left, unnamed = self.left, self.unnamed
        for name, amount in asked:
            if amount > left.get(name, unnamed):
                return name
        return ""

    def impossible(self, asked: Amounts) -> str:
        """Return the first slot of which these amounts exceed the whole limit; empty if there is none."""
        return next((name for name, amount in asked if amount > self.most.get(name, self.unnamed)), "")

    def count(self, asked: Amounts) -> None:
        left = self.left
        for name, amount in asked:
            if name in left:
                left[name] -= amount
        self.sessions += 1

    def sessions_reason(self) -> Reason:
        limit = self.limit.max_sessions
        details = self._details(used=self.sessions, asked=1, limit=limit)
        message = Message(
            "{who} has {sessions} of at most {limit} sessions at once.",
            who=self.who,
            sessions=self.sessions,
            limit=limit,
        )
        return Reason(TOO_MANY_SESSIONS, message, details, never=limit == 0)

    def slots_reason(self, slot: str, amount: int, *, never: bool) -> Reason:
        most = self.most.get(slot, 0)
        used = most - self.left[slot] if slot in self.left else self.limit.used[slot]
        details = self._details(
            slot=slot, used=decimal_text(used), asked=decimal_text(amount), limit=decimal_text(most)
        )
        holds, asks, may = format_amount(slot, used), format_amount(slot, amount), amount_in_words(slot, most)
        if never:
            message = Message(
                "{who} may use at most {may}; this session alone requests {asks}.", who=self.who, may=may, asks=asks
            )
        else:
            message = Message(
                "{who} uses {holds} of at most {may}; this session requests {asks}.",
                who=self.who,
                holds=holds,
                may=may,
                asks=asks,
            )
        return Reason(SLOT_LIMIT, message, details, never=never)

    def _details(self, **numbers: object) -> dict[str, object]:
        return {"scope": self.limit.scope, "name": self.limit.name, **numbers}


class _Accounts:
    """The limits of all holders of a session, the narrowest holder first. Caches by amounts why a session waits."""

    def __init__(self, accounts: tuple[_Account, ...]) -> None:
        self.accounts = accounts
        self._counted = -1
        self._reasons: dict[Amounts, Reason] = {}

    def slots_reason(self, asked: Amounts) -> Reason:
        counted = sum(account.sessions for account in self.accounts)
        if counted != self._counted:  # a placement has changed the numbers in the reasons
            self._counted = counted
            self._reasons.clear()
        reason = self._reasons.get(asked)
        if reason is None:
            reason = self._reasons[asked] = self._reason(asked)
        return reason

    def _reason(self, asked: Amounts) -> Reason:
        for account in self.accounts:
            slot = account.impossible(asked)
            if slot:
                return account.slots_reason(slot, dict(asked)[slot], never=True)
        account = next(account for account in self.accounts if account.exceeded(asked))
        slot = account.exceeded(asked)
        return account.slots_reason(slot, dict(asked)[slot], never=False)
