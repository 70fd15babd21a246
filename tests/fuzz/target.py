"""One harness under libFuzzer: `python -m tests.fuzz.target NAME [libFuzzer's options] [folders]`."""

import importlib
import sys
from functools import partial
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
        from tests.fuzz.script import entries

        pool = [entry for seed in harness.seeds() for entry in entries(seed)] if hasattr(harness, "script") else []
        options["custom_mutator"] = partial(_mutate, harness.mutate, pool)
    atheris.Setup(sys.argv, harness.run, **options)
    atheris.Fuzz()


def _mutate(mutate: Any, pool: Any, data: bytes, size: int, seed: int) -> bytes:
    result: bytes = mutate(data, size, seed, atheris.Mutate, pool)
    return result


if __name__ == "__main__":
    main()
