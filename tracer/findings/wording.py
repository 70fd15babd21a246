"""How findings speak: durations, calls and pods in a few words."""

from collections.abc import Iterable

from tracer.facts import CriCall, Pod

NS = 1_000_000_000


def seconds(ns: int) -> str:
    """`4_000_000_000` -> "4.0 s", `185_000_000_000` -> "3 min 5 s"."""
    if ns < 120 * NS:
        return f"{ns / NS:.1f} s"
    minutes, rest = divmod(round(ns / NS), 60)
    if minutes < 120:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def gap(ns: int) -> str:
    """What lies between two events, which may be less than a second: `350_000_000` -> "350 ms"."""
    return f"{max(0, ns) // 1_000_000} ms" if ns < NS else seconds(ns)


def pod(value: Pod) -> str:
    return f"{value.namespace}/{value.name}"


def call(value: CriCall) -> str:
    """`StopContainer of web in default/web-0`, with what is known."""
    name = value.method or "a call whose method is unknown"
    if value.container is not None:
        name += f" of container {value.container.name}"
    elif value.container_id is not None:
        name += f" of container {value.container_id[:13]}"
    if value.pod is not None:
        name += f" in pod {pod(value.pod)}"
    elif value.sandbox_id is not None:
        name += f" of sandbox {value.sandbox_id[:13]}"
    elif value.image is not None:
        name += f" of {value.image}"
    return name


MAX_ERROR = 240
"""Characters of an error's text in a finding."""


def error(text: str) -> str:
    """An error's text in a line: of a long one the middle goes, as Go's errors begin with who and end with why."""
    if len(text) <= MAX_ERROR:
        return text
    return f"{text[:80]} … {text[80 - MAX_ERROR + 3 :]}"


def times(count: int) -> str:
    """1 -> "once", 3 -> "3 times"."""
    return "once" if count == 1 else f"{count} times"


def several(names: Iterable[str], most: int = 3) -> str:
    """`a, b, c and 4 more`."""
    found = list(dict.fromkeys(names))
    if len(found) <= most:
        return ", ".join(found)
    return f"{', '.join(found[:most])} and {len(found) - most} more"


def pods_of(calls: Iterable[CriCall]) -> tuple[Pod, ...]:
    """Each pod once, in order."""
    return tuple(dict.fromkeys(each.pod for each in calls if each.pod is not None))
