"""`schedule`: the clocks by all of their names, the interval as a duration."""

from datetime import timedelta

import pytest

from streams import PunctuationType
from streams.engine.graph.node import Punctuations


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (PunctuationType.STREAM_TIME, PunctuationType.STREAM_TIME),
        ("STREAM_TIME", PunctuationType.STREAM_TIME),
        ("stream_time", PunctuationType.STREAM_TIME),
        (PunctuationType.WALL_CLOCK_TIME, PunctuationType.WALL_CLOCK_TIME),
        ("WALL_CLOCK_TIME", PunctuationType.WALL_CLOCK_TIME),
        ("wall_clock_time", PunctuationType.WALL_CLOCK_TIME),
        ("wall_clock", PunctuationType.WALL_CLOCK_TIME),
    ],
)
def test_a_clock_has_these_names(given, meant):
    punctuations = Punctuations({}, 0)
    made = punctuations.schedule("node", timedelta(seconds=1), given, lambda time: None)
    assert (made.kind, made.interval_ms, punctuations.due(meant, 1000)) == (meant, 1000, [made])
