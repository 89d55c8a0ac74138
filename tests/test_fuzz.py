"""A short run of the fuzz target; longer ones: `python tests/fuzz.py --seconds 600 --seed 1`."""

import fuzz


def test_a_short_run():
    assert fuzz.fuzz(seconds=2.5, seed=0) > 20
