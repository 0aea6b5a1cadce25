"""Random histories of the commit protocol; a failure names its seed, which `make sim SEED=n` replays. `make sim` plays 20,000."""

import pytest

from tests.budget import seeds
from tests.simulation.application import Failed
from tests.simulation.history import play_all


@pytest.mark.slow
@pytest.mark.parametrize("first", seeds(range(0, 400, 100)))
def test_random_histories(first):
    for ended in play_all(range(first, first + 100)):
        if isinstance(ended, Failed):
            raise ended
