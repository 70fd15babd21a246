"""Why: the verdict in one sentence, then what it rests on, what is not known, and what to try."""

from collections.abc import Iterable
from typing import Any

SEVERITIES = ("critical", "warning", "info")

SLOW_SECONDS = 1.0
"""A relist that has been open for longer is spoken of although no rule has found a cause yet."""

CLIENTS = 3
"""Clients told of: who else asks the runtime, and how much of its time that takes."""

FULL = 3
"""Findings told with their evidence; of the others only the sentence."""


def why(
    findings: Iterable[dict[str, Any]],
    pleg: dict[str, Any] | None,
    losses: Iterable[str],
    clients: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """The fields of `GET /api/v1/why`.

    `findings`: fields of findings of the window, active or ended; `pleg`: fields of `GET /api/v1/pleg`, None where
    only the past is known; `losses`: what is wrong with the tracing itself, in words; `clients`: items of
    `GET /api/v1/usage`, the costliest first.
    """
    ranked = sorted(findings, key=lambda each: each["start"], reverse=True)
    ranked.sort(key=lambda each: (each["state"] != "active", SEVERITIES.index(each["severity"])))
    told = [each for each in ranked if each["severity"] != "info"]
    active = [each for each in told if each["state"] == "active"]
    unknown = list(dict.fromkeys(text for each in told[:FULL] for text in each["unknown"]))
    unknown += [f"Tracing was not complete: {text}." for text in losses]
    return {
        "sentence": _sentence(active, told, pleg),
        "state": "trouble" if active else "past_trouble" if told else "quiet",
        "pleg": pleg,
        "findings": ranked,
        "clients": clients[:CLIENTS] if clients is not None else None,
        "unknown": unknown,
        "next_steps": list(dict.fromkeys(text for each in told[:FULL] for text in each["next_steps"])),
    }


def _sentence(active: list[dict[str, Any]], told: list[dict[str, Any]], pleg: dict[str, Any] | None) -> str:
    if active:
        return str(active[0]["summary"])
    waiting = _waiting(pleg) if pleg else None
    if waiting:
        return waiting
    if told:
        return f"Nothing is slow now. Lately: {told[0]['summary']}"
    if pleg and pleg["last_relist_start"] is not None:
        return f"Nothing is slow: the last relist began {pleg['age_seconds']:.1f} s ago, and no call waits for long."
    return "Nothing was found." if pleg is None else "Nothing was found; no relist of a kubelet has been seen yet."


def _waiting(pleg: dict[str, Any]) -> str | None:
    age, waits = pleg["relist_age_seconds"], pleg["waiting_for"]
    if age is None or age < SLOW_SECONDS:
        return None
    if waits is None:
        return f"A relist has been under way for {age:.1f} s and waits for no call: the kubelet itself is at work."
    pod = f" for pod {waits['pod']['namespace']}/{waits['pod']['name']}" if waits["pod"] else ""
    return (
        f"A relist has been under way for {age:.1f} s and waits for {waits['method'] or 'a call'}{pod} "
        f"({waits['age_seconds']:.1f} s, {(waits['stage'] or 'unknown stage').replace('_', ' ')})."
    )


def text(verdict: dict[str, Any]) -> str:
    """The same for people: a sentence, then sections that only stand there when they hold something."""
    lines = [verdict["sentence"], ""]
    pleg = verdict["pleg"]
    if pleg and pleg["seconds_until_unhealthy"] is not None:
        left = pleg["seconds_until_unhealthy"]
        state = f"unhealthy in {left:.0f} s unless a relist begins" if left > 0 else f"UNHEALTHY for {-left:.0f} s"
        lines += [f"PLEG     {state} (stage {pleg['stage']}, relist age {_age(pleg['relist_age_seconds'])})", ""]
    told = [each for each in verdict["findings"] if each["severity"] != "info"]
    for number, finding in enumerate(told[:FULL], 1):
        lasted = "active" if finding["state"] == "active" else f"ended, lasted {_age(finding['duration_seconds'])}"
        lines.append(f"{number}. {finding['severity'].upper()} {finding['kind']} ({finding['id']})")
        lines.append(f"   {finding['summary']}")
        lines.append(
            f"   since {finding['start']}, {lasted}; confidence {finding['confidence']}, {finding['completeness']}"
        )
        for evidence in finding["evidence"][:8]:
            where = next((f" [{name} {evidence[name]}]" for name in ("call", "step") if evidence[name]), "")
            lines.append(f"   - {evidence['time'] or 'at all times'}  {evidence['text']}{where}")
        if len(finding["evidence"]) > 8:
            lines.append(f"   - and {len(finding['evidence']) - 8} more: /api/v1/findings/{finding['id']}")
        lines.append("")
    for finding in told[FULL:]:
        lines.append(f"   also {finding['severity']} {finding['kind']} ({finding['id']}): {finding['summary']}")
    clients = [
        f"{each['name']}: {each['calls']} calls, {100 * each['service_share']:.0f} % of the runtime's time"
        for each in verdict["clients"] or ()
    ]
    if clients:
        lines += ["Who calls:", *(f"   - {item}" for item in clients), ""]
    for title, items in (("Not known:", verdict["unknown"]), ("Try:", verdict["next_steps"])):
        if items:
            lines += [title, *(f"   - {item}" for item in items), ""]
    return "\n".join(lines).rstrip() + "\n"


def _age(seconds: float | None) -> str:
    return "none" if seconds is None else f"{seconds:.1f} s"
