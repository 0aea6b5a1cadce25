"""More random histories of the commit protocol; a failure says its seed, which `make sim SEED=n` replays."""

from tests.simulation.history import play_all


def test_random_histories():
    play_all(range(5_000, 10_000))
