"""Autoscaling: computes how many replicas an endpoint should have, and why. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

from backendai.base.core.messages import Message
from backendai.scheduler.serving.snapshot import DesiredState, EndpointView, Reason, ReplicaState

UP_OVER, SPARE, PANIC_OVER = 1.1, 0.85, 2.0
PANIC_LASTS, COOL_DOWN, OLDEST_READING = timedelta(seconds=60), timedelta(seconds=300), timedelta(seconds=15)
_ROUNDING = 0.1  # replicas: a higher load by less than this needs no further replica


@dataclass(frozen=True, slots=True)
class Scale:
    """The decision on the number of replicas of an endpoint, with the reason. ``panic_until``: until this time the
    number is not lowered (None: it may be lowered)."""

    desired: int
    reason: Reason
    panic_until: datetime | None = None


def decide_scale(endpoint: EndpointView, now: datetime) -> Scale:
    """Return how many replicas the endpoint should have now."""
    if endpoint.wish != DesiredState.RUN:
        if endpoint.replicas:
            text = Message("The endpoint is stopped: its replicas answer their open requests and end.")
            return Scale(0, Reason("paused", text))
        return Scale(0, Reason("paused", Message("The endpoint is stopped: it has no replicas.")))
    if endpoint.desired == 0 and endpoint.minimum == 0:
        return _wake(endpoint)
    if not endpoint.minimum <= endpoint.desired <= endpoint.maximum and not _may_sleep(endpoint, now):
        desired = _clamped(endpoint.desired, endpoint)
        message = Message(
            "The minimum number of replicas is {minimum}, the maximum number {maximum}.",
            minimum=endpoint.minimum,
            maximum=endpoint.maximum,
        )
        return Scale(desired, Reason("limits-changed", message, _numbers(endpoint)), endpoint.panic_until)
    if endpoint.minimum == endpoint.maximum:
        message = Message(
            "The minimum and the maximum are both {number}: the load does not change the number of replicas.",
            number=endpoint.maximum,
        )
        return Scale(endpoint.desired, Reason("manual", message, _numbers(endpoint)))
    return _up(endpoint, now) or _down(endpoint, now)


def _wake(endpoint: EndpointView) -> Scale:
    if endpoint.maximum > 0 and (endpoint.load.held or endpoint.load.queued or endpoint.load.open):
        held = max(endpoint.load.held, endpoint.load.queued, endpoint.load.open)
        message = (
            Message("A request waits for the endpoint: its first replica starts.")
            if held == 1
            else Message("{requests} requests wait for the endpoint: its first replica starts.", requests=held)
        )
        return Scale(1, Reason("woken", message, _numbers(endpoint)))
    message = Message("There are no requests. The next request starts a replica.")
    return Scale(0, Reason("asleep", message))


def _up(endpoint: EndpointView, now: datetime) -> Scale | None:
    """Return a higher number of replicas; None if the load needs no more. If a limit prevents more, returns the same
    number with that reason."""
    have, load, target = endpoint.desired, endpoint.load, endpoint.target
    panic_until = endpoint.panic_until if endpoint.panic_until and endpoint.panic_until > now else None
    want, code, bound = have, "load-grew", load.long + load.backlog
    if bound > UP_OVER * target * have:
        want = _replicas(bound, target)
    if (peak := load.short + load.backlog) > PANIC_OVER * target * have:
        want, code, bound = max(want, min(_replicas(peak, target), 2 * have)), "load-jumped", peak
        panic_until = now + PANIC_LASTS
    by_rule = _wanted_by_rules(endpoint)
    if by_rule and by_rule[0] > want:
        until = _rules_rest_until(endpoint, now)
        if until is None:
            want, message = by_rule
            return _raised(endpoint, want, Reason("rule", message, _numbers(endpoint)), panic_until)
        if want <= have < endpoint.maximum:
            message = Message("The number of replicas changed a moment ago; rules raise it after five minutes.")
            return Scale(have, Reason("cooling-down", message, _numbers(endpoint), until), panic_until)
    if want <= have:
        return None
    message = Message(
        "{load} requests are under way at once, the target is {target} per replica: {want} replicas.",
        load=f"{bound:.1f}",
        target=f"{target:g}",
        want=want,
    )
    return _raised(endpoint, want, Reason(code, message, _numbers(endpoint)), panic_until)


def _raised(endpoint: EndpointView, want: int, reason: Reason, panic_until: datetime | None) -> Scale:
    if endpoint.desired < endpoint.maximum:
        return Scale(_clamped(want, endpoint), reason, panic_until)
    message = Message(
        "The load asks for {want} replicas, the limit of the endpoint is {limit}. Raise the limit to {next} or more.",
        want=want,
        limit=endpoint.maximum,
        next=endpoint.maximum + 1,
    )
    data = {**_numbers(endpoint), "wanted": want, "change": {"maximum": endpoint.maximum + 1}}
    return Scale(endpoint.desired, Reason("at-max", message, data), panic_until)


def _rules_rest_until(endpoint: EndpointView, now: datetime) -> datetime | None:
    """Return until when rules change nothing, as the number of replicas changed; None: rules apply. They apply to a
    new endpoint at once."""
    if endpoint.scaled_at is None or endpoint.scaled_at == endpoint.created_at:
        return None
    until = endpoint.scaled_at + COOL_DOWN
    return until if now < until else None


def _wanted_by_rules(endpoint: EndpointView) -> tuple[int, Message] | None:
    """Return the highest number of replicas that a rule demands, and why; None if no rule demands more."""
    found = [
        (
            endpoint.desired + rule.step,
            Message(
                "{metric} is {value}, above {limit}.",
                metric=rule.name,
                value=f"{rule.value:g}",
                limit=f"{rule.up_over:g}",
            ),
        )
        for rule in endpoint.rules
        if rule.value is not None
        and rule.up_over is not None
        and rule.value > rule.up_over
        and (not rule.needs_queue or endpoint.load.queued > 0)
    ]
    return max(found, default=None)


def _down(endpoint: EndpointView, now: datetime) -> Scale:
    """Return a lower number of replicas (0: the endpoint sleeps), or the same number, each with the reason."""
    have = endpoint.desired
    if (kept := _why_not_down(endpoint, now)) is not None:
        return Scale(have, kept, endpoint.panic_until)
    if _may_sleep(endpoint, now):
        return Scale(0, Reason("fell-asleep", _quiet(endpoint.asleep_after), _numbers(endpoint)))
    floor = max(endpoint.minimum, 1)
    needed = max(_with_spare(endpoint), floor)
    if needed >= have:
        is_least = have <= floor and _with_spare(endpoint) < have
        text = _least(endpoint.load.long, have) if is_least else _right(endpoint.load.long, have)
        return Scale(have, Reason("at-min" if is_least else "at-target", text, _numbers(endpoint)))
    if any(rule.down_under is not None for rule in endpoint.rules) and (until := _rules_rest_until(endpoint, now)):
        message = Message("The number of replicas changed a moment ago; rules lower it after five minutes.")
        return Scale(have, Reason("cooling-down", message, _numbers(endpoint), until))
    lower = max(needed, ceil(have / 2), _lowest_by_rules(endpoint))
    if lower >= have:
        return Scale(have, Reason("rule-holds", Message("A rule holds the number of replicas."), _numbers(endpoint)))
    return Scale(lower, Reason("load-fell", _fell(endpoint.load.peak, lower), _numbers(endpoint)))


def _right(load: float, number: int) -> Message:
    if number == 1:
        return Message("{load} requests are under way at once: 1 replica is right.", load=f"{load:.1f}")
    return Message(
        "{load} requests are under way at once: {number} replicas are right.", load=f"{load:.1f}", number=number
    )


def _least(load: float, number: int) -> Message:
    return Message(
        "{load} requests are under way at once; the minimum of replicas is {number}.", load=f"{load:.1f}", number=number
    )


def _fell(peak: float, number: int) -> Message:
    if number == 1:
        return Message("At most {load} requests were under way at once in five minutes: 1 replica.", load=f"{peak:.1f}")
    return Message(
        "At most {load} requests were under way at once in five minutes: {number} replicas.",
        load=f"{peak:.1f}",
        number=number,
    )


def _why_not_down(endpoint: EndpointView, now: datetime) -> Reason | None:
    load = endpoint.load
    if load.age is None or load.age > OLDEST_READING or load.is_partial:
        if load.age is None:
            return Reason("blind", Message("No app proxy has reported: the number does not go down."))
        message = Message(
            "Not every app proxy reports (the newest report is {seconds} s old): the number does not go down.",
            seconds=f"{load.age.total_seconds():.0f}",
        )
        return Reason("blind", message)
    if unknown := [rule.name for rule in endpoint.rules if rule.value is None]:
        message = Message("{metric} is not known now: the number of replicas does not go down.", metric=unknown[0])
        return Reason("metric-unknown", message)
    if endpoint.panic_until and now < endpoint.panic_until:
        message = Message("The load jumped a moment ago: the number of replicas does not go down for a minute.")
        return Reason("in-window", message, until=endpoint.panic_until)
    placed = [one for one in endpoint.replicas if one.is_coming and not one.waits_for]
    if placed and load.long + load.backlog > 0:
        message = (
            Message("A replica is starting: the number goes down after that.")
            if len(placed) == 1
            else Message("{number} replicas are starting: the number goes down after that.", number=len(placed))
        )
        return Reason("starting-already", message)
    return None


def _quiet(span: timedelta) -> Message:
    seconds = span.total_seconds()
    if seconds < 120:
        return Message("No request came for {seconds} s.", seconds=f"{seconds:g}")
    return Message("No request came for {minutes} minutes.", minutes=f"{seconds / 60:.0f}")


def _may_sleep(endpoint: EndpointView, now: datetime) -> bool:
    busy = endpoint.load.open or endpoint.load.queued or endpoint.load.held
    last = max(filter(None, (endpoint.asked_at, endpoint.scaled_at)), default=None)
    return endpoint.minimum == 0 and not busy and last is not None and now - last >= endpoint.asleep_after


def _lowest_by_rules(endpoint: EndpointView) -> int:
    """Return the lowest number of replicas that all rules allow. A rule allows one step down only while its metric is
    below the lower threshold."""
    floors = [
        endpoint.desired - rule.step if rule.value is not None and rule.value < rule.down_under else endpoint.desired
        for rule in endpoint.rules
        if rule.down_under is not None
    ]
    return max(floors, default=0)


def _with_spare(endpoint: EndpointView) -> int:
    return ceil(max(endpoint.load.peak, endpoint.load.long + endpoint.load.backlog) / SPARE / endpoint.target)


def _replicas(load: float, target: float) -> int:
    return ceil(load / target - _ROUNDING)


def _clamped(number: int, endpoint: EndpointView) -> int:
    return max(endpoint.minimum, min(number, endpoint.maximum))


def _numbers(endpoint: EndpointView) -> Mapping[str, object]:
    load, states = endpoint.load, [one.state for one in endpoint.replicas]
    return {
        "desired": endpoint.desired,
        "load": round(load.long, 2),
        "peak": round(load.peak, 2),
        "queued": load.queued,
        "held": load.held,
        "target": endpoint.target,
        "ready": states.count(ReplicaState.READY),
    }
