"""Error texts of runtimes, without what may be a secret in them."""

import re

MAX_ERROR = 512
"""Characters of an error text kept; runc and CNI errors name their cause well before."""

_SECRETS = (
    # user:password in a URL; its query (registry tokens)
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^/\s@\"']+@"), r"\1…@"),
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://[^\s?\"']+)\?[^\s\"']*"), r"\1?…"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.+/=~-]+"), r"\1 …"),
    (
        re.compile(r"(?i)([\w-]*(?:passw(?:or)?d|secret|token|api[_-]?key|auth)[\w-]*\s*[=:]\s*)[^\s,;\"']+"),
        r"\1…",
    ),
    # the command line of a container or an exec, as runc quotes it
    (re.compile(r'exec: \\?".*?\\?": '), 'exec: "…": '),
)


def redact(text: str) -> str:
    """An error text without what may be a secret, at most `MAX_ERROR` characters."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text if len(text) <= MAX_ERROR else text[: MAX_ERROR - 1] + "…"
