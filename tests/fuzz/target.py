"""One harness under libFuzzer: `python -m tests.fuzz.target NAME [libFuzzer's options] [folders]`."""

import importlib
import sys
from typing import Any

import atheris

from tests.fuzz import NAMES


def main() -> None:
    name = sys.argv.pop(1)
    if name not in NAMES:
        sys.exit(f"no harness {name}: {', '.join(NAMES)}")
    with atheris.instrument_imports(include=["tracer"], enable_loader_override=False):
        harness = importlib.import_module(f"tests.fuzz.harness.{name}")
    options: dict[str, Any] = {}
    if hasattr(harness, "mutate"):
        options["custom_mutator"] = lambda data, size, seed: harness.mutate(data, size, seed, atheris.Mutate)
    # For -merge libFuzzer starts itself anew, by a shell: what it calls itself is the whole command.
    sys.argv[0] = f"{sys.executable} -m tests.fuzz.target {name}"
    atheris.Setup(sys.argv, harness.run, **options)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
