"""Coverage-guided fuzzing: one harness a decoder, in `tests.fuzz.harness`.

A harness is a module with `run(data)`, which turns any bytes into its decoder's input and asserts what must hold, and
`seeds()`, inputs made from shipped captures; some have a `mutate` of their own. None of them needs atheris: the kept
corpus (tests/data/fuzz, one archive a harness) is an ordinary test. `python -m tests.fuzz` looks for more.
"""

NAMES = (
    "kernel_records", "capture_files", "streams", "frames", "header_tables", "messages", "metadata", "rpc",
    "honesty", "cri_messages", "texts", "redact_messages", "redactor", "cursors", "moments", "pipeline", "ttrpc",
)  # fmt: skip
