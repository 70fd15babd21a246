"""The terminal's view: PLEG, findings, open and slow calls, busiest pods and clients, in as many lines as there are."""

import unicodedata
from typing import Any

ACT = ("critical", "warning")


def screen(seen: dict[str, Any], width: int, height: int) -> list[str]:
    """Lines of at most `width` columns, at most `height` of them.

    `seen`: the answers of REST by route: `pleg`, `findings` (active), `open` (calls), `clients`, `activities`, `pods`
    (usage), `health`.
    """
    head = [*_health(seen["health"]), *_pleg(seen["pleg"])]
    blocks = [
        ("FINDINGS", [_finding(each) for each in _ranked(seen["findings"])]),
        ("OPEN CALLS  age      stage          method, pod", [_call(each) for each in seen["open"]]),
        ("CLIENTS     calls    time %  bytes", [_share(each) for each in seen["clients"]]),
        ("ACTIVITIES  calls    time %  bytes", [_share(each) for each in seen["activities"]]),
        ("PODS        calls    time %  bytes", [_share(each) for each in seen["pods"]]),
    ]
    lines = list(head)
    room = height - len(head) - 2 * len(blocks)
    for number, (title, items) in enumerate(blocks):
        left = len(blocks) - number
        take = min(len(items), max(1, room // left))
        room -= take
        shown = items[:take] or ["none"]
        of = f"   ({take} of {len(items)})" if len(items) > take else ""
        lines += ["", title + of, *(f"  {item}" for item in shown)]
    return [_cut(line, width) for line in lines[:height]]


def _health(health: dict[str, Any]) -> list[str]:
    runtimes = ", ".join(health.get("runtimes", {})) or health["source"]
    trouble = f"  {'; '.join(health['reasons'])}" if health["reasons"] else ""
    return [f"criscope {health['version']}  {runtimes}  tracing {health['status']}{trouble}"]


def _pleg(pleg: dict[str, Any]) -> list[str]:
    if pleg["seconds_until_unhealthy"] is None:
        return ["PLEG  no relist of a kubelet has been seen yet"]
    left = pleg["seconds_until_unhealthy"]
    word = f"unhealthy in {left:.0f} s unless a relist begins" if left > 0 else f"UNHEALTHY for {-left:.0f} s"
    lines = [f"PLEG  {word}; {pleg['stage']} for {_seconds(pleg['stage_seconds'])}"]
    waits = pleg["waiting_for"]
    if waits is not None:
        pod = f" of {waits['pod']['namespace']}/{waits['pod']['name']}" if waits["pod"] else ""
        stage = (waits["stage"] or "unknown stage").replace("_", " ")
        lines.append(f"      waits for {waits['method'] or 'a call'}{pod}, {_seconds(waits['age_seconds'])} ({stage})")
    return lines


def _ranked(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(findings, key=lambda each: ("critical", "warning", "info").index(each["severity"]))


def _finding(finding: dict[str, Any]) -> str:
    return f"{finding['severity']:8} {finding['kind']}: {finding['summary']}"


def _call(call: dict[str, Any]) -> str:
    waits = [call[f"{name}_seconds"] or 0.0 for name in ("request_wait", "service", "response_wait")]
    pod = f" {call['pod']['namespace']}/{call['pod']['name']}" if call["pod"] else ""
    container = f" {call['container']['name']}" if call["container"] and call["container"]["name"] else ""
    stage = (call["stage"] or "unknown").replace("_", " ")
    return f"          {_seconds(sum(waits)):8} {stage:14} {call['method'] or 'unknown'}{pod}{container}"


def _share(share: dict[str, Any]) -> str:
    percent = f"{100 * share['service_share']:5.1f}"
    return f"          {share['calls']:<8} {percent:7} {_bytes(share['bytes']):>9}  {share['name']}"


def _seconds(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{seconds:.1f} s"


def _bytes(count: int) -> str:
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError


def _cut(line: str, width: int) -> str:
    """Without control characters, which could do anything to a terminal, and no wider than that."""
    clean = "".join(char if unicodedata.category(char)[0] != "C" else "?" for char in line)
    return clean if len(clean) <= width else f"{clean[: width - 1]}…"
