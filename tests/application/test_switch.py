"""A switch between the executions: what sessions of before still commit, what is restored, what an interrupted one leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from state.commit.crash_points import CrashPoints
from state.commit.decide import TaskIdentity
from state.commit.marker import CommitMarker
from state.commit.session import TaskSession
from state.commit.step import CommitStep, StepInput
from state.errors import CheckpointMismatchError, FencedError
from state.restore.plan import Action
from state.restore.task_stores import WorkerMemory
from state.stores.codec import timestamped
from streams import Materialized, StreamsBuilder
from streams.application import adopt
from streams.application.execution import LiveStart, Switch
from streams.application.markers import MarkerAccess
from streams.application.prepare import ensure_internal_topics, plan_application
from streams.application.start import Preflight
from streams.checkpoint.files import LocalFiles, query_id_of, read_checkpoint
from streams.config import StreamsConfig
from streams.engine.source.offsets import FirstBatch, SourceOffsets
from streams.testing.simulation import SimulatedKafka, SimulatedStores, SimulatedTable
from tests.checkpoint.made import at
from tests.commit.test_step import Effects
from tests.simulation.stories import fencing_in_first_steps

TASKS = 2
COUNTED = "counts"


def program() -> Any:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(materialized=Materialized(COUNTED)).to_stream().to("out")
    return builder.build()


class Shop:
    """An application of one sub-topology and two tasks: its driver's switches, and sessions of its tasks."""

    def __init__(self, folder: Path) -> None:
        self.kafka: Any = SimulatedKafka({"in": TASKS, "out": TASKS})
        config = StreamsConfig(
            application_id="app", bootstrap_servers="simulated:1", tasks=TASKS, base_dir=folder, execution="auto"
        )  # type: ignore[arg-type]
        self.planned = plan_application(program(), config, self.kafka)
        ensure_internal_topics(self.planned, self.kafka, lambda _: None)
        (self.prepared,) = self.planned.subs
        self.files = LocalFiles(str(folder))
        self.tables = [SimulatedTable() for _ in range(TASKS)]
        self.stores: list[Any] = []

    def preflight(self) -> Preflight:
        def nothing(*_: object) -> None: ...

        return Preflight(self.planned, self.files, self.kafka, nothing, self.kafka, nothing, self.kafka.sample)

    def switched(self) -> tuple[Switch, FirstBatch | None]:
        """A driver's switch, and where the sub-topology begins if it is new."""
        preflight = self.preflight()
        switch = Switch(preflight, lambda _: None)
        switch.finish(self.planned.subs)
        return switch, preflight.run().get("in")

    def to_live(self) -> LiveStart:
        switch, first = self.switched()
        start = switch.to_live(self.prepared, first)
        assert start is not None
        return start

    def to_micro_batches(self) -> list[int]:
        """Where micro-batches begin in the two partitions."""
        switch, known = self.switched()
        first = switch.to_micro_batches(self.prepared, known)
        assert first is not None
        return list(first.start.topics["in"].offsets)

    def markers(self) -> Mapping[int, CommitMarker | None]:
        return self.preflight().markers(self.prepared).read()

    def session(self, task: int, query_id: str) -> TaskSession:
        sub = self.prepared.sub
        identity = TaskIdentity("app", sub.name, task, TASKS, query_id, sub.topology_hash)
        specs = [node.spec for node in sub.stores.values()]
        stores: Any = SimulatedStores(self.kafka, identity, specs, self.tables[task], WorkerMemory())
        self.stores.append(stores)
        return TaskSession(CommitStep(identity, self.kafka, stores, CrashPoints()))


def step(one: TaskSession, start: int, end: int) -> None:
    """A live step over some records of the task's partition, which changes its store."""

    def process(store: Any, last: CommitMarker | None) -> Any:
        store.store(COUNTED).put(b"k%d" % end, timestamped(b"%d" % end, end), end)
        return Effects([])

    ranges = {"in": {str(one.identity.task): (start, end)}}
    done = one.prepare(StepInput(-1, "", ranges, {}, {}, 1, live=True), process)
    done.transaction.commit()
    one.apply(done)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def within(monkeypatch: pytest.MonkeyPatch, shop: Shop, fence: int, act: Callable[[], object]) -> None:
    """Does something else right before the driver fences a task for the n-th time."""
    fenced, count = SimulatedKafka.fence, iter(range(1, 1000))

    def fence_later(kafka: SimulatedKafka, transactional: Any) -> int:
        if next(count) == fence:
            act()
        return fenced(kafka, transactional)

    def one_after_the_other(access: MarkerAccess, ask: Callable[[int], Any]) -> dict[int, Any]:
        return {task: ask(task) for task in range(TASKS)}

    monkeypatch.setattr(MarkerAccess, "_each", one_after_the_other)
    monkeypatch.setattr(SimulatedKafka, "fence", fence_later)


# Of two tasks: two fences of slots and two of tasks at the beginning, and one before each marker that is replaced.
@pytest.mark.parametrize("fence", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("task", range(TASKS))
@pytest.mark.parametrize("has_committed", [True, False])
def test_what_a_session_commits_within_a_switch_counts_or_is_refused(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, fence: int, task: int, has_committed: bool
) -> None:
    """Its producer may not write again, so it fences anew: whoever switches must not have decided anything from before."""
    query = shop.to_live().query_id
    if has_committed:
        for number in range(TASKS):
            with shop.session(number, query) as before:
                step(before, 0, 5)
    start = 5 if has_committed else 0
    refused: list[CheckpointMismatchError] = []

    def straggle() -> None:
        try:
            with fencing_in_first_steps():
                step(straggler, start, 8)
        except CheckpointMismatchError as error:
            refused.append(error)

    straggler = shop.session(task, query)
    with straggler:
        within(monkeypatch, shop, fence, straggle)
        positions = shop.to_micro_batches()
    monkeypatch.undo()
    assert straggler.last is None or not refused or straggler.last.version == has_committed
    assert positions[task] == (start if refused else 8)
    assert positions[1 - task] == start
    assert not refused or fence > 4
    # All markers are of the new checkpoint, so nothing of before commits any more.
    assert {marker and marker.query_id for marker in shop.markers().values()} == {query_id_of(shop.files, "in")}
    for number in range(TASKS):
        with pytest.raises(CheckpointMismatchError, match="made under checkpoint"), shop.session(number, query):
            pass
    shop.preflight().run()


def test_a_session_whose_task_has_never_committed_commits_nothing_after_a_switch(shop: Shop) -> None:
    query = shop.to_live().query_id
    with shop.session(0, query) as straggler:
        assert shop.to_micro_batches() == [0, 0]
        with fencing_in_first_steps(), pytest.raises(CheckpointMismatchError, match="another process has committed"):
            step(straggler, 0, 3)
    # Nor does such a task lose its first step to the marker that stands in for one.
    start = shop.to_live()
    assert start.query_id == query_id_of(shop.files, "in") != query
    with shop.session(0, start.query_id) as one:
        step(one, 0, 3)
        assert one.last is not None
        assert (one.last.version, one.last.adopted) == (1, 0)


# Of two tasks: two fences at the beginning, and one before each marker that is replaced.
@pytest.mark.parametrize("fence", [None, 1, 2, 3, 4])
def test_a_placement_is_only_given_up_if_nothing_is_committed_by_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, fence: int | None
) -> None:
    """Whoever commits by it while it is given up keeps it, or commits nothing."""
    query, refused = shop.to_live().query_id, []
    switch, _ = shop.switched()

    def straggle() -> None:
        try:
            step(straggler, 0, 8)
        except (CheckpointMismatchError, FencedError) as error:
            refused.append(error)

    with shop.session(1, query) as straggler:
        if fence is not None:
            within(monkeypatch, shop, fence, straggle)
        unplaced = switch.unplace(shop.prepared)
        monkeypatch.undo()
        if fence is None:
            straggle()
    assert unplaced is bool(refused)
    found = {marker.placement for marker in shop.markers().values() if marker is not None}
    assert ("murmur2" in found) is not unplaced


def test_sessions_that_fence_again_and_again_end_the_switch_and_not_the_records(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something that nobody expects runs under the application's id, with its checkpoint: nothing is changed by halves."""
    query = shop.to_live().query_id
    steps = iter(range(1, 100))
    replace = adopt._replace_markers

    def after_a_step(*given: Any) -> int | None:
        with shop.session(1, query) as one:
            number = next(steps)
            step(one, number - 1, number)
        return replace(*given)

    monkeypatch.setattr(adopt, "_replace_markers", after_a_step)
    with pytest.raises(CheckpointMismatchError, match=r"task 1 is running\. Stop the application on all hosts"):
        shop.to_micro_batches()
    monkeypatch.undo()
    assert shop.to_micro_batches() == [0, next(steps) - 1]


@pytest.mark.parametrize("lost", [False, True])
def test_a_switch_restores_nothing_that_is_at_hand(shop: Shop, lost: bool) -> None:
    query = shop.to_live().query_id
    for number in range(TASKS):
        with shop.session(number, query) as one:
            step(one, 0, 5)
    shop.to_micro_batches()
    if lost:
        shop.tables[1] = SimulatedTable()
    query = str(query_id_of(shop.files, "in"))
    for number in range(TASKS):
        with shop.session(number, query) as one:
            restored = {store.action for store in shop.stores[-1].report.stores} - {Action.NOTHING}
            assert restored == ({Action.FROM_START} if lost and number == 1 else set())
            step(one, 5, 6)
        # Local state stays known by the query that has made it first, over any number of switches.
        assert one.last is not None
        assert one.last.query_id == query != one.last.state_of


def test_an_adoption_trusts_no_local_state(shop: Shop) -> None:
    """The checkpoint or topics were lost, and with them perhaps what local state was made of."""
    query = shop.to_live().query_id
    with shop.session(0, query) as one:
        step(one, 0, 5)
    marker = shop.markers()[0]
    assert marker is not None
    made = adopt.Adoption("new", FirstBatch(at(0, 0)), {0: 1}, frozenset())
    assert made.marker(marker).state_of == "new"


def test_moved_positions_keep_what_is_committed_until_the_last_fence(shop: Shop) -> None:
    """Topics that are not moved are read on where the tasks have ended, also one that was slow to end."""
    query = shop.to_live().query_id
    for number in range(TASKS):
        with shop.session(number, query) as one:
            step(one, 0, 5)
    nothing_moved = {"in": FirstBatch(SourceOffsets({}))}
    with shop.session(1, query) as straggler:
        (move,) = adopt.plan_moves("app", shop.kafka, shop.files, {"in": TASKS}, nothing_moved)
        step(straggler, 5, 8)
        adopt.carry_out(move, shop.files, lambda _: None)
    first = read_checkpoint(shop.files, "in").first
    assert first is not None
    assert first.start.by_partition() == shop.kafka.groups["app"] == {("in", 0): 5, ("in", 1): 8}


def test_a_switch_that_was_interrupted_goes_on_behind_what_was_committed_since(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = shop.to_live().query_id
    for number in range(TASKS):
        with shop.session(number, query) as one:
            step(one, 0, 5)
    straggler = shop.session(1, query)
    with straggler:
        # The driver dies before it replaces the marker of task 1.
        def die() -> None:
            raise KeyboardInterrupt

        within(monkeypatch, shop, 4, die)
        with pytest.raises(KeyboardInterrupt):
            shop.to_micro_batches()
        monkeypatch.undo()
        step(straggler, 5, 9)
    assert shop.to_micro_batches() == [5, 9]
    checkpoint = read_checkpoint(shop.files, "in")
    assert checkpoint.first is not None
    assert checkpoint.first.start.of("in", 1) == 9
    assert not shop.files.names("in" + adopt.ADOPTING)


def test_only_the_unfinished_micro_batch_runs_before_a_switch_to_live(shop: Shop) -> None:
    for number in range(10):
        shop.kafka.append("in", b"k", b"v", number, partition=0)
    switch, first = shop.switched()
    assert switch.unfinished(shop.prepared) is None
    assert first is not None
    files, end = shop.files, first.start.to_json()
    end["topics"]["in"]["offsets"] = [4, 0]
    files.write("in/metadata", b'{"id":"q"}')
    files.write("in/offsets/0", b'v1\n{"batchTimestampMs":1,"conf":{}}\n' + orjson.dumps(end))
    switch, first = shop.switched()
    assert switch.to_live(shop.prepared, first) is None
    unfinished = switch.unfinished(shop.prepared)
    assert unfinished is not None
    assert unfinished.by_partition() == {("in", 0): 4, ("in", 1): 0}
