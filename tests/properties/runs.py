"""Random input for the property tests, and how it is fed: in steps of any size, with restarts between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import strategies as st

from streams import StreamsBuilder, Windowed
from streams.testing import TopologyTestDriver
from tests.budget import up_to
from tests.properties.model import Entry

FAR = 1_000_000
FLUSH = tuple(f"~{number}" for number in range(12))

examples = up_to(20)
some = up_to(10)
"""For a law that holds for many kinds of programs: each kind is another test, and most of what they run is the same code."""


class Feed(NamedTuple):
    """A log, and where it is cut.

    Attributes:
        log: the records in order of arrival.
        cuts: behind each record: 0: the step goes on; 1: it ends; 2: it ends, and the application starts anew.
    """

    log: list[Entry]
    cuts: list[int]

    @property
    def steps(self) -> list[list[Entry]]:
        """The records of each step."""
        steps: list[list[Entry]] = [[]]
        for entry, cut in zip(self.log, self.cuts, strict=True):
            steps[-1].append(entry)
            if cut:
                steps.append([])
        return [step for step in steps if step]

    def one_by_one(self) -> Feed:
        """The same records, each a step of its own, without a restart."""
        return Feed(self.log, [1] * len(self.log))


@st.composite
def feeds(
    draw: st.DrawFn,
    topics: tuple[str, ...] = ("in",),
    partitions: int = 3,
    disorder: int | None = 10,
    keys: tuple[str | None, ...] = ("a", "b", "c", None),
    nulls: bool = True,
    apart: int = 1,
    most: int = 22,
) -> Feed:
    """Records of which each is at most ``disorder`` ms older than the newest before it, in any topic; None: no bound.

    Every value is another one. With ``apart`` > 1 all times are multiples of it plus the record's number: none is equal.
    """
    newest, log, cuts = draw(st.integers(0, 30)), [], []
    for number in range(draw(st.integers(1, most))):
        back = st.integers(0, 60 if disorder is None else disorder)
        if draw(st.booleans()):
            time = max(0, newest - draw(back))
        else:
            time = newest + draw(st.sampled_from((0, 1, 2, 3, 5, 8, 13, 21, 34, 80)))
        newest = max(newest, time)
        value = None if nulls and draw(st.integers(0, 9)) == 0 else {"v": number}
        stamp = time if apart == 1 else time * apart + number
        place = draw(st.integers(0, partitions - 1))
        log.append(Entry(draw(st.sampled_from(topics)), place, draw(st.sampled_from(keys)), value, stamp))
        cuts.append(draw(st.sampled_from((0, 0, 0, 1, 1, 2))))
    return Feed(log, cuts)


def run(
    build: Callable[[StreamsBuilder], Any],
    feed: Feed,
    *,
    partitions: int = 1,
    tasks: int | None = None,
    by_key: bool = False,
    flush: str | None = None,
    optimize: bool = False,
    **settings: Any,
) -> tuple[list[Any], int]:
    """Rows of topic "out" as (key or (key, start, end), value, time), and how many records were late.

    Args:
        build: builds the topology.
        feed: what is fed, and how.
        partitions: of each topic.
        tasks: of each sub-topology.
        by_key: a record's partition is its key's, as for tables, not the one it names.
        flush: a topic that gets records far in the future at the end, for each task, so that everything is closed; what
            becomes of them is left out.
        optimize: as the builder's.
        **settings: Those of the driver, too.
    """
    builder = StreamsBuilder(optimize=optimize)
    build(builder)
    topology = builder.build()
    topics = {topic for source in topology.sources() for topic in source.topics}
    with TopologyTestDriver(topology, partitions=dict.fromkeys(topics, partitions), tasks=tasks, **settings) as driver:
        inputs = {topic: driver.create_input_topic(topic) for topic in topics}
        at = 0
        for step in feed.steps:
            with driver.batch():
                for topic, partition, key, value, time in step:
                    inputs[topic].pipe_input(key, value, time, partition=None if by_key else partition)
            at += len(step)
            if feed.cuts[at - 1] == 2:
                driver.restart()
        if flush is not None:
            with driver.batch():
                for key in FLUSH:
                    inputs[flush].pipe_input(key, {"v": 0}, FAR)
        rows = [
            (place(one.key), one.value, one.timestamp)
            for one in driver.create_output_topic("out").read_records_to_list()
        ]
        return [row for row in rows if not _is_flush(row[0])], driver.dropped("late")


def place(key: Any) -> Any:
    """A windowed key as (key, start, end), others as they are."""
    return (key.key, key.window.start, key.window.end) if isinstance(key, Windowed) else key


def _is_flush(key: Any) -> bool:
    return str(key[0] if isinstance(key, tuple) else key).startswith("~")


def bag(rows: list[Any]) -> Counter[str]:
    """Rows in any order; lists and objects cannot be counted, their text can."""
    return Counter(map(repr, rows))


def last(rows: list[Any]) -> dict[Any, Any]:
    """The last row of each place, tombstones left out."""
    found = {key: (value, time) for key, value, time in rows}
    return {key: row for key, row in found.items() if row[0] is not None}


def sequences(rows: list[Any]) -> dict[Any, Any]:
    """The rows of each place, in order."""
    found: dict[Any, list[Any]] = {}
    for key, value, time in rows:
        found.setdefault(key, []).append((value, time))
    return found
