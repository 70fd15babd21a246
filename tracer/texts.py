"""Error texts of runtimes, without what may be a secret in them."""

import re
from collections.abc import Iterable

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
)


_COMMAND = re.compile(r'exec: \\?"(.*?)\\?"')
"""A command that could not be run, as runc quotes it; it tends to repeat it unquoted ("stat ...: no such file")."""

MAX_READ = 8 * MAX_ERROR
"""Characters of a text looked at; a peer may send 16 KiB, for which the patterns would take their time."""

LEAST_WORD = 3
"""Characters of a word that is looked for; shorter ones are parts of others."""


def redact(text: str, words: Iterable[str] = ()) -> str:
    """An error text without `words` and what else may be a secret, at most `MAX_ERROR` characters."""
    if len(text) > MAX_READ:
        text = text[:MAX_READ].rpartition(" ")[0]  # no half of a secret at the cut
    for word in sorted({*words, *_COMMAND.findall(text)}, key=len, reverse=True):
        if len(word) >= LEAST_WORD:
            text = text.replace(word, "…")
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text if len(text) <= MAX_ERROR else text[: MAX_ERROR - 1] + "…"
