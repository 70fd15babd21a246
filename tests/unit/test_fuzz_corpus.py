"""What fuzzing reached once still holds: every kept input, and every seed, through its harness."""

import importlib
import random

import pytest

from tests.fuzz import NAMES, corpus

TOTAL_BYTES = 500_000


@pytest.mark.parametrize("name", NAMES)
def test_every_kept_input_holds(name):
    harness = importlib.import_module(f"tests.fuzz.harness.{name}")
    inputs = corpus.load(name)
    assert inputs, "it lost its corpus"
    for data in inputs:
        try:
            harness.run(data)
        except Exception as error:
            error.add_note(f"input {corpus.digest(data)} of {name}.zip")
            raise


@pytest.mark.parametrize("name", NAMES)
def test_seeds_are_real_and_hold(name):
    harness = importlib.import_module(f"tests.fuzz.harness.{name}")
    found = list(harness.seeds())
    assert len(found) > 8
    for data in random.Random(1).sample(found, 8):
        harness.run(data)


def test_every_harness_has_a_corpus_and_all_of_them_are_small():
    kept = {path.stem: path.stat().st_size for path in corpus.FOLDER.iterdir()}
    assert kept.keys() == set(NAMES)
    assert sum(kept.values()) < TOTAL_BYTES
