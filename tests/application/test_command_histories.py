"""Commands between two starts, in random order: no record is lost or counted twice, but those that a move lets be read again."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from state.commit.step import CommitStep
from state.errors import KafkaClientError
from state.kafka.topics import TopicSpec
from streams import Materialized, Processor, Retry, StreamsBuilder
from streams.application.adopt import carry_out, plan_moves
from streams.application.reset import Wanted, plan_reset, reset, start_positions
from streams.errors import ConfigError, RescaleError
from tests.budget import up_to
from tests.doctor.world import APP, World
from tests.rescale.test_refusals import adopt, rescale
from tests.simulation.spark import QueryFailed

REFUSALS = (
    "no task has committed",
    "neither a topology.json",
    "Run the application once",
    "Run the application again",
    "Start the application",
    "Say where reading continues",
)
KEYS = (b"a", b"b", b"c", b"d", b"e")


class RetriesSome(Processor):
    """Lets some keys come back from the retry topic once."""

    def process(self, record: Any) -> None:
        if record.key in (b"b", b"d") and self.ctx.record_metadata.topic == "in":
            raise ConnectionError
        self.ctx.forward(record)


def retried_counts() -> Any:
    builder = StreamsBuilder()
    some = builder.stream("in").process_values(RetriesSome, named="some", on_error=Retry((0,), dead_letters="dead"))
    some.group_by_key().count(materialized=Materialized("counts", caching=False)).to_stream().to("out")
    return builder.build()


class History:
    """An application, and the model of what it has read: a count per key, and positions."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder, topology=retried_counts())
        self.world.kafka.create_topics([TopicSpec("dead", 1)])
        # As without the right to delete records: what is in the retry topic can be read again.
        self.world.kafka.delete_records = lambda before: {}  # type: ignore[method-assign]
        self.logs: list[list[bytes]] = [[], []]
        self.read = [0, 0]
        self.counts: Counter[bytes] = Counter()
        self.expected: Counter[tuple[bytes, int]] = Counter()
        self.whole = True
        self.done: Counter[str] = Counter()

    def feed(self, partition: int, keys: list[bytes]) -> None:
        self.logs[partition] += keys
        for key in keys:
            self.world.kafka.append("in", key, b"1", self.world.cluster.now_ms, partition=partition)

    def run(self, dies: int | None = None, before: bool = True) -> None:
        """A run over all input; with a task that dies, before or after its commit, it fails in its first micro-batch."""

        def step(self: CommitStep, *given: Any) -> Any:
            result = None if self.identity.task == dies and before else genuine(self, *given)
            if self.identity.task == dies:
                raise KafkaClientError("the task dies")
            return result

        genuine = CommitStep.run
        driver = self.world.start()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CommitStep, "run", step)
            try:
                while driver.trigger():
                    pass
                self.complete()
            except QueryFailed:
                self.whole = False
                self.done["failed"] += 1

    def count(self, ends: list[int]) -> None:
        for partition, (log, end) in enumerate(zip(self.logs, ends, strict=True)):
            for key in log[self.read[partition] : end]:
                self.counts[key] += 1
                self.expected[key, self.counts[key]] += 1
        self.read = ends

    def complete(self) -> None:
        self.count([len(log) for log in self.logs])
        self.whole = True
        assert Counter(self.world.counted()) == self.expected

    def pause(self) -> None:
        """A run that is paused from its start finishes what was begun, and nothing else."""
        driver = self.world.start()
        driver._planner._paused = lambda: True
        while driver.trigger():
            pass
        if (last := self.world.checkpoint.last("offsets")) >= 0:
            self.count(list(self.world.checkpoint.end(last)[0].topics["in"].offsets))

    def adopt(self) -> None:
        """The loss of the checkpoint, and `streams adopt`; not right after a reset, when there is nothing to adopt."""
        if self.counts:
            checkpoint = Path(self.world.config.checkpoint_dir) / "in"
            aside = checkpoint.rename(checkpoint.parent.parent / "aside")
            try:
                adopt(self.world)
            except ConfigError:
                aside.rename(checkpoint)
                raise
            shutil.rmtree(aside)

    def move(self, parts: tuple[int, int], keep: bool) -> None:
        """`streams reset` with positions, with `--keep-state` or without."""
        to = [len(log) * part // 4 for log, part in zip(self.logs, parts, strict=True)]
        world, kafka = self.world, self.world.kafka
        start = start_positions(world.config, kafka, kafka, Wanted(offsets={("in", n): at for n, at in enumerate(to)}))
        if keep:
            for move in plan_moves(APP, kafka, world.files, {"in": world.plan()[1].tasks}, start):
                carry_out(move, world.files, lambda _: None)
        elif self.whole:
            reset(plan_reset(world.config, kafka, kafka, start=start), kafka, lambda _: None)  # type: ignore[arg-type]
            self.counts.clear()
        else:
            return
        self.read = to

    def play(self, name: str, *given: Any) -> None:
        try:
            getattr(self, name)(*given)
            self.done[name] += 1
        except (ConfigError, RescaleError) as refusal:
            if not any(text in str(refusal) for text in REFUSALS):
                raise
            self.done[f"{name} refused"] += 1

    def rescale(self, tasks: int) -> None:
        rescale(self.world, tasks)


fed = st.tuples(st.just("feed"), st.integers(0, 1), st.lists(st.sampled_from(KEYS), min_size=1, max_size=4))
runs = st.one_of(
    st.tuples(st.just("run")),
    st.tuples(st.just("run"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("pause")),
)
commands = st.one_of(
    st.tuples(st.just("adopt")),
    st.tuples(st.just("move"), st.tuples(st.integers(0, 4), st.integers(0, 4)), st.booleans()),
    st.tuples(st.just("rescale"), st.integers(1, 3)),
)
seen: Counter[str] = Counter()


@up_to(80, phases=[Phase.generate])
@given(steps=st.lists(st.one_of(fed, runs, commands, commands), min_size=6, max_size=16))
def _check(steps: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder))
        history.feed(0, list(KEYS))
        history.feed(1, list(KEYS))
        history.play("run")
        for step in steps:
            history.play(*step)
        history.play("run")
        assert history.whole
        seen.update(history.done)


@pytest.mark.slow
def test_results_are_those_of_the_model_whatever_was_done_between_two_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    _check()
    missing = {"failed", "pause", "adopt", "move", "move refused", "rescale", "rescale refused"} - seen.keys()
    assert not missing, f"never happened: {missing}; {seen}"
