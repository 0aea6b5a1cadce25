"""Several operators behind one another in strict mode, over repartition topics, and several streams into one table."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import EmitStrategy, Materialized, SessionWindows, SlidingWindows, Suppressed, TimeWindows
from tests.properties import model
from tests.properties.runs import FAR, bag, examples, feeds, last, run

DISORDER = 10


@pytest.mark.slow
@examples
@given(
    size=st.integers(1, 40),
    on_close=st.booleans(),
    feed=feeds(disorder=DISORDER, keys=("a", "b", "c", "d")),
    tasks=st.integers(1, 3),
)
def test_final_results_counted_anew(size, on_close, feed, tasks):
    """Each window's count is added to a total over all keys exactly once, behind a repartition topic."""

    def build(builder: Any) -> None:
        windowed = builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size_and_grace(size, DISORDER))
        if on_close:
            final = windowed.emit_strategy(EmitStrategy.on_window_close()).count()
        else:
            final = windowed.count().suppress(Suppressed.until_window_closes())
        totals = final.to_stream().map(lambda window, count: (str(window.window.start), count)).group_by_key()
        totals.reduce(lambda total, count: total + count).to_stream().to("out")

    rows, late = run(build, feed, partitions=3, tasks=tasks, flush="in")
    found = {int(start): total for start, (total, _) in last(rows).items() if int(start) < FAR // 2}
    wanted: dict[int, int] = {}
    for _, start, _ in (windows := model.time_windows(model.by_time(feed.log), size, size, DISORDER)[0]):
        of_all = [len(values) for (_, begin, _), (values, _) in windows.items() if begin == start]
        wanted[start] = sum(of_all)
    assert late == 0
    assert found == wanted


@pytest.mark.slow
@examples
@given(
    kind=st.sampled_from(("plain", "time", "sliding", "session")),
    size=st.integers(1, 40),
    caching=st.booleans(),
    feed=feeds(("left", "right"), disorder=DISORDER, nulls=False),
    tasks=st.integers(1, 3),
)
def test_cogrouped_streams(kind, size, caching, feed, tasks):
    """Two streams into one table: the aggregate of the records of both."""

    def add(value: Any, held: Any) -> Any:
        return sorted([*held, value["v"]])

    def build(builder: Any) -> None:
        left, right = (builder.stream(topic).group_by_key() for topic in ("left", "right"))
        both, how = left.cogroup(add).cogroup(right, add), Materialized(caching=caching)
        if kind == "session":
            windows = SessionWindows.of_inactivity_gap_and_grace(size, DISORDER)
            table = both.windowed_by(windows).aggregate(list, lambda one, two: sorted([*one, *two]), materialized=how)
        elif kind == "plain":
            table = both.aggregate(list, materialized=how)
        else:
            sliding = SlidingWindows.of_time_difference_and_grace(size, DISORDER)
            windows = sliding if kind == "sliding" else TimeWindows.of_size_and_grace(size, DISORDER)
            table = both.windowed_by(windows).aggregate(list, materialized=how)
        table.to_stream().to("out")

    rows, late = run(build, feed, partitions=3, tasks=tasks)
    log = model.by_time(feed.log)
    found = {
        "plain": lambda: model.grouped(log),
        "time": lambda: model.time_windows(log, size, size, DISORDER)[0],
        "sliding": lambda: model.sliding_windows(log, size),
        "session": lambda: model.sessions(log, size),
    }[kind]()
    wanted = {place: (model.listed(values), time) for place, (values, time) in found.items()}
    assert late == 0
    assert last(rows) == wanted


@pytest.mark.slow
@examples
@given(feed=feeds(("left", "right"), disorder=DISORDER), tasks=st.integers(1, 3))
def test_what_is_merged_and_split_is_all_there(feed, tasks):
    """No record is lost or doubled on the way through a merge, a split, a new key and a repartition topic."""

    def build(builder: Any) -> None:
        merged = builder.stream("left").merge(builder.stream("right"))
        branches = merged.split().branch(lambda key, value: value is None).default_branch()
        both = branches["0"].select_key(lambda value: f"k{value['v'] % 3}").repartition()
        both.merge(branches["1"]).to("out")

    rows, _ = run(build, feed, partitions=3, tasks=tasks)
    wanted = [
        (entry.key if entry.value is None else f"k{entry.value['v'] % 3}", entry.value, entry.time)
        for entry in feed.log
    ]
    assert bag(rows) == bag(wanted)
