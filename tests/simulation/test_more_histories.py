"""More random histories of the commit protocol; a failure says its seed, which `make sim SEED=n` replays."""

from tests.simulation.history import play

SEEDS = range(5_000, 10_000)


def test_random_histories():
    for seed in SEEDS:
        play(seed)
