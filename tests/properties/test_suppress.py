"""`suppress` compared with a plain model that plays one update after the other, however the updates are divided into steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import BufferConfig, Materialized, StreamsBuilder, Suppressed, TimeWindows
from streams.errors import SuppressBufferFullError
from streams.testing import TopologyTestDriver
from tests.properties.runs import place, some

SIZE, GRACE = 10, 4


@dataclass(frozen=True)
class Update:
    """A record of the topic `in`, which a step may end with."""

    key: str
    value: int | None
    time: int
    headers: tuple[tuple[str, bytes], ...]
    ends: bool


@dataclass(frozen=True)
class Rules:
    """What is suppressed how: a table for `limit` ms, or (None) windows until they close."""

    limit: int | None
    caching: bool
    max_records: int | None
    max_bytes: int | None
    early: bool
    compat: bool

    def table(self, builder: StreamsBuilder) -> Any:
        bounds = BufferConfig(self.max_records, self.max_bytes)
        bounds = bounds.emit_early_when_full() if self.early else bounds.shut_down_when_full()
        if self.limit is not None:
            return builder.table("in").suppress(Suppressed.until_time_limit(self.limit, bounds))
        windowed = builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size_and_grace(SIZE, GRACE))
        # A deletion in the stream would be dropped, so it is written as 0.
        last = windowed.aggregate(
            lambda: None, lambda key, value, old: value or None, materialized=Materialized(caching=self.caching)
        )
        return last.suppress(Suppressed.until_window_closes(bounds))


@dataclass
class Held:
    """What the model holds of a key."""

    place: int
    key: Any
    prior: int | None
    old: int | None
    new: int | None
    time: int
    headers: tuple[tuple[str, bytes], ...]

    @property
    def row(self) -> bytes:
        """The order of the buffer."""
        key = self.key if isinstance(self.key, str) else self.key[0]
        return self.place.to_bytes(8, "big") + key.encode() + (b"" if key is self.key else bytes(8))

    def size(self, topic: str) -> int:
        """Kafka Streams' estimate."""
        values = [self.prior, self.new] + ([] if self.old == self.prior else [self.old])
        sizes = sum(len(orjson.dumps(value)) for value in values if value is not None)
        return len(self.row) + sizes + 20 + len(topic) + sum(len(name) + len(value) for name, value in self.headers)


@dataclass
class Model:
    """One update after the other, over a dictionary."""

    rules: Rules
    held: dict[Any, Held] = field(default_factory=dict)
    rows: dict[Any, tuple[int, int]] = field(default_factory=dict)
    seen: int = -1
    now: int = -1
    out: list[Any] = field(default_factory=list)
    log: list[Any] = field(default_factory=list)

    def step(self, updates: list[Update]) -> None:
        """All records of a step, in order of time as one partition is not: in order of arrival."""
        changes = list(self._changes(updates))
        if self.rules.limit is None and self.rules.caching:
            last = {key: (old, new, time, headers) for key, old, new, time, headers in changes}
            first = {key: old for key, old, _, _, _ in reversed(changes)}
            told = [(key, first[key], *rest[1:]) for key, rest in last.items()]
            for change in sorted(told, key=lambda one: one[3]):
                if change[1] is not None or change[2] is not None:
                    self._hold(*change)
            self._emit()
            return
        for change in changes:
            self._hold(*change)
            self._emit()

    def _changes(self, updates: list[Update]) -> Iterator[tuple[Any, int | None, int | None, int, Any]]:
        """The updates of the table above."""
        for one in updates:
            key: Any = one.key
            self.seen = max(self.seen, one.time)
            if self.rules.limit is None:
                start = one.time - one.time % SIZE
                if start + SIZE + GRACE <= self.seen:
                    continue
                key = (one.key, start, start + SIZE)
            old, before = self.rows.get(key, (None, -1))
            time = one.time if self.rules.limit is not None else max(one.time, before)
            self.rows[key] = (one.value, -1 if one.value is None else time)
            yield key, old, one.value, time, one.headers

    def _hold(self, key: Any, old: int | None, new: int | None, time: int, headers: Any) -> None:
        self.now = max(self.now, time)
        held = self.held.get(key)
        at, prior = (time if isinstance(key, str) else key[2], old) if held is None else (held.place, held.prior)
        self.held[key] = Held(at, key, prior, old, new, time, headers)

    def _emit(self) -> None:
        wait = GRACE if self.rules.limit is None else self.rules.limit
        while self.held:
            first = min(self.held.values(), key=lambda one: one.row)
            if first.place > self.now - wait:
                if not self._is_over():
                    return
                if not self.rules.early:
                    raise SuppressBufferFullError
            del self.held[first.key]
            if first.new is None and self.rules.limit is None:
                continue
            self.out.append((first.key, first.new, first.time, first.headers))
            old = first.old if self.rules.compat else first.prior
            # What is subtracted from nothing is not told.
            self.log += [["-", old]] if old is not None and self.log else []
            self.log += [["+", first.new]] if first.new is not None else []

    def _is_over(self) -> bool:
        topic = "in" if self.rules.compat else ""
        size = sum(one.size(topic) for one in self.held.values())
        rules = self.rules
        return (rules.max_records is not None and len(self.held) > rules.max_records) or (
            rules.max_bytes is not None and size > rules.max_bytes
        )


WAYS = {
    "for a time": lambda limit: Rules(limit, False, None, None, False, False),
    "few records": lambda limit: Rules(limit, False, 2, None, True, False),
    "few bytes": lambda limit: Rules(limit, False, None, 120, True, False),
    "never full": lambda limit: Rules(limit, False, 3, 200, False, False),
    "windows": lambda limit: Rules(None, False, None, None, False, False),
    "windows, never full": lambda limit: Rules(None, False, 3, 200, False, False),
    "windows in a cache": lambda limit: Rules(None, True, None, None, False, False),
    "windows in a cache, never full": lambda limit: Rules(None, True, 3, 200, False, False),
}


@st.composite
def updates(draw: st.DrawFn) -> list[Update]:
    """Updates in any order of time, divided into steps: one by one, all at once, in halves, or anyhow."""
    count, now, found = draw(st.integers(6, 25)), 0, list[Update]()
    division = draw(st.sampled_from(("one by one", "at once", "halves", "anyhow")))
    for number in range(count):
        now += draw(st.sampled_from((0, 0, 1, 1, 2, 3, 9)))
        ends = {"one by one": True, "at once": False, "halves": number == count // 2}.get(division)
        found.append(
            Update(
                draw(st.sampled_from(("a", "a", "b", "bc"))),
                draw(st.sampled_from((None, 1, 2, 3, 44, 555))),
                max(0, now - draw(st.sampled_from((0, 0, 0, 1, 4, 12)))),
                draw(st.sampled_from(((), (), (("h", b"1"), ("i", b"22"))))),
                draw(st.booleans()) if ends is None else ends,
            )
        )
    return found


def steps_of(found: list[Update]) -> list[list[Update]]:
    steps: list[list[Update]] = [[]]
    for one in found:
        steps[-1].append(one)
        if one.ends:
            steps.append([])
    return [step for step in steps if step]


def expected(rules: Rules, steps: list[list[Update]]) -> tuple[list[Any], list[Any], bool]:
    """What the model emits and tells a table below before it fails, and whether it fails."""
    model, kept = Model(rules), ([], [])
    for step in steps:
        try:
            model.step(step)
        except SuppressBufferFullError:
            return (*kept, True)
        kept = list(model.out), list(model.log)
    return (*kept, False)


def found(rules: Rules, steps: list[list[Update]], restart: int) -> tuple[list[Any], list[Any], bool]:
    builder = StreamsBuilder()
    table = rules.table(builder)
    table.to_stream().to("out")
    rows = table.group_by(lambda key, value: ("all", value))
    rows.aggregate(
        list, lambda value, log: [*log, ["+", value]], lambda value, log: [*log, ["-", value]]
    ).to_stream().to("log")
    with TopologyTestDriver(builder.build(), mode="compat" if rules.compat else "strict") as driver:
        topic, full = driver.create_input_topic("in"), False
        for number, step in enumerate(steps):
            try:
                with driver.batch():
                    for one in step:
                        value = 0 if one.value is None and rules.limit is None else one.value
                        topic.pipe_input(one.key, value, one.time, headers=one.headers)
            except SuppressBufferFullError:
                full = True
                break
            if number == restart:
                driver.restart(wipe_state=True)
        records = driver.create_output_topic("out").read_records_to_list()
        logs = driver.create_output_topic("log").read_values_to_list()
        return [(place(r.key), r.value, r.timestamp, r.headers) for r in records], logs[-1] if logs else [], full


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@some
@given(st.sampled_from((0, 3, 20)), st.booleans(), updates(), st.integers(0, 8))
def test_any_updates_in_any_steps(way: str, limit: int, compat: bool, updates: list[Update], restart: int) -> None:
    rules, steps = replace(WAYS[way](limit), compat=compat), steps_of(updates)
    assert found(rules, steps, restart) == expected(rules, steps)
