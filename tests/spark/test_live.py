"""Live execution on real Spark and Kafka: the same results, and the way there and back."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer

from state.commit.crash_points import POINTS
from state.errors import CheckpointMismatchError
from state.kafka.admin import KafkaAdmin
from streams import Materialized, Processor, Record, Retry, StreamsBuilder, StringSerde, TimeWindows, agg
from streams.application.pausing import Pausing
from streams.application.prepare import plan_application
from streams.application.rescale.cluster import LiveRescale
from streams.application.rescale.plan import UsersChoices
from streams.application.status import SubStatus, application_status
from streams.checkpoint.files import LocalFiles
from streams.cli.options import live
from streams.config import Execution
from streams.driver import live as live_query
from streams.driver import runner
from streams.driver.kafka_streams import ApplicationState, KafkaStreams
from streams.driver.live import LiveGate
from streams.engine.source.log import LiveLog
from streams.engine.source.pauses import read_pauses
from streams.errors import ConfigError
from streams.logs.events import LEFT_LIVE, RESTORED, RUNNING, Event
from streams.topology.topology import Topology
from tests.spark.harness import Harness, Sent, last_per_key
from tests.spark.live import eventually
from tests.spark.test_checkpoints import adopt, rescale
from tests.spark.test_restore import differences

pytestmark = pytest.mark.micro_batches("these go there and back, and each says which of its runs is live")

WAIT_S = 60.0


@contextmanager
def running(harness: Harness, topology: Topology, **settings: Any):
    config = harness.config(available_now=False, **settings)
    with KafkaStreams(topology, config).start(harness.spark) as app:
        yield app


def counts(source: str, target: str) -> Topology:
    builder = StreamsBuilder()
    builder.stream(source).group_by_key().aggregate(n=agg.count()).to_stream().to(target)
    return builder.build()


def record(number: int) -> Sent:
    return Sent(f"k{number % 7}".encode(), orjson.dumps({"x": number}), 1_000 + number)


def found(harness: Harness, target: str) -> dict[str, int]:
    return {
        (key or b"").decode(): orjson.loads(value or b"null")["n"]
        for key, value in last_per_key(harness.read(target)).items()
    }


def expected(numbers: int) -> dict[str, int]:
    return {f"k{key}": len(range(key, numbers, 7)) for key in range(min(7, numbers))}


def is_found(harness: Harness, target: str, numbers: int) -> bool:
    return found(harness, target) == expected(numbers)


def test_an_application_goes_on_in_the_other_execution_with_its_state(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = harness.topic("in"), harness.topic("out")
    topology = counts(source, target)
    harness.send(source, map(record, range(100)))
    harness.run(topology)
    assert found(harness, target) == expected(100)

    with running(harness, topology, execution=Execution.LIVE):
        harness.send(source, map(record, range(100, 150)))
        eventually(partial(is_found, harness, target, 150), "live results")
        harness.send(source, map(record, range(150, 200)))
        eventually(lambda: found(harness, target) == expected(200), "more live results")
    monkeypatch.setattr(runner, "LEASE_S", 1.0)
    leases, run_lease = [], live_query.run_lease
    monkeypatch.setattr(live_query, "run_lease", lambda *lease: (leases.append(lease), run_lease(*lease)))
    with running(harness, topology, execution=Execution.LIVE):
        harness.send(source, map(record, range(200, 225)))
        eventually(lambda: found(harness, target) == expected(225), "live results after a restart")
        eventually(lambda: len(leases) > 2, "another lease")
        harness.send(source, map(record, range(225, 250)))
        eventually(lambda: found(harness, target) == expected(250), "live results of another lease")

    harness.send(source, map(record, range(250, 300)))
    harness.run(topology)
    assert found(harness, target) == expected(300)
    outputs = [orjson.loads(one.value)["n"] for one in harness.read(target) if one.key == b"k0"]
    assert outputs == sorted(set(outputs)), "each count was sent once"


def test_a_run_over_what_is_there_ends_live_once_all_that_came_of_it_is_processed(harness: Harness) -> None:
    source, target = harness.topic("in"), harness.topic("out")
    builder = StreamsBuilder()
    builder.stream(source).repartition(name="moved").group_by_key().aggregate(n=agg.count()).to_stream().to(target)
    harness.send(source, map(record, range(100)))
    for numbers in (100, 150):
        progress = harness.run(builder.build(), execution=Execution.LIVE)
        assert found(harness, target) == expected(numbers)
        assert progress.reports
        assert all(report.live for report in progress.reports), "of live steps"
        assert (
            harness.group_offsets().items() >= {(source, number): end for number, end in ends(harness, source)}.items()
        )
        harness.send(source, map(record, range(numbers, 150)))


def ends(harness: Harness, topic: str) -> list[tuple[int, int]]:
    """The partitions of a topic that have records, with their ends."""
    with KafkaAdmin({"bootstrap.servers": harness.servers}) as admin:
        places = [(topic, number) for number in range(admin.describe_topics([topic])[topic].partitions)]
        return [(number, end) for (_, number), end in admin.end_offsets(places).items() if end]


IN_A_STEP = POINTS[POINTS.index("process_halfway") : POINTS.index("before_report")]
AT_THE_START = POINTS[: POINTS.index("restore_halfway")]
AT_ONCE = 3
"""Spark tries each task four times."""
FAULTS = [*AT_THE_START, "restore_done", *IN_A_STEP]
SOME = ["after_init", "outputs_sent", "before_commit", "after_commit", "store_half_applied"]
"""Behind the fence, within the transaction, on both sides of its end, and where the local store is behind."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("faults", [SOME, pytest.param(FAULTS, marks=pytest.mark.long)], ids=["some", "all"])
def test_a_worker_killed_anywhere_changes_nothing(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: list[str]
) -> None:
    source, target = harness.topic("in"), harness.topic("out")
    topology = counts(source, target)
    sent = 0
    for first in range(0, len(faults), AT_ONCE):
        # At the start of an attempt only the first one can happen; the others strike in the steps of the next attempts.
        points = faults[first : first + AT_ONCE]
        happened = tmp_path / f"happened-{first}"
        monkeypatch.setenv("STREAMS_FAULT", ",".join(f"{point}@1" for point in points))
        monkeypatch.setenv("STREAMS_FAULT_ONCE", str(happened))

        def struck(happened: Path = happened) -> list[str]:
            return happened.read_text().splitlines() if happened.exists() else []

        with running(harness, topology, execution=Execution.LIVE):
            while len(struck()) < len(points):
                harness.send(source, map(record, range(sent, sent + 50)))
                sent += 50
                eventually(partial(is_found, harness, target, sent), f"results in spite of {points}")
        assert [line.rpartition(" ")[2].partition("@")[0] for line in struck()] == points
    for key in expected(sent):
        outputs = [orjson.loads(one.value or b"")["n"] for one in harness.read(target) if one.key == key.encode()]
        assert outputs == sorted(set(outputs)), "each count was sent once"
    monkeypatch.delenv("STREAMS_FAULT")
    harness.send(source, map(record, range(sent, sent + 50)))
    harness.run(topology)
    assert found(harness, target) == expected(sent + 50)
    assert differences(harness, topology, tmp_path / "restored") == []


class Priced(Processor[str, str, str, str]):
    """Adds the price of the global table to each order; an order without one fails, and is tried again later."""

    def process(self, record: Record[str, str]) -> None:
        found = self.ctx.store("prices").get(record.value)
        if found is None:
            raise LookupError(f"no price of {record.value}")
        self.ctx.forward(record.with_value(f"{record.value} {found.value}"))


def test_global_tables_and_retry_topics_live(harness: Harness) -> None:
    """An order is served once its price has come, though the table was read before."""
    source, prices, target = harness.topic("in"), harness.topic("prices"), harness.topic("out")
    builder = StreamsBuilder(default_key_serde=StringSerde(), default_value_serde=StringSerde())
    builder.global_table(prices, Materialized("prices"))
    retry = Retry([1_000, 5_000, 20_000], dead_letters=harness.topic("dlq"))
    builder.stream(source).process_values(Priced, "prices", named="priced", on_error=retry).to(target)
    topology = builder.build()
    harness.send(prices, [Sent(b"a", b"1", 0)])

    def out() -> list[bytes | None]:
        return sorted(one.value or b"" for one in harness.read(target))

    with running(harness, topology, execution=Execution.LIVE):
        harness.send(source, [Sent(b"k", b"a", 1_000), Sent(b"k", b"b", 1_001)])
        eventually(lambda: out() == [b"a 1"], "what has a price")
        harness.send(prices, [Sent(b"b", b"2", 0)])
        eventually(lambda: out() == [b"a 1", b"b 2"], "what has got one")


def test_an_application_that_starts_while_it_is_paused_continues_after_its_resume(harness: Harness) -> None:
    source, target = harness.topic("in"), harness.topic("out")
    topology = counts(source, target)
    harness.send(source, map(record, range(50)))
    with running(harness, topology, execution=Execution.LIVE) as app:
        eventually(partial(is_found, harness, target, 50), "live results")
        app.pause()
    harness.send(source, map(record, range(50, 100)))
    with running(harness, topology, execution=Execution.LIVE) as app:
        # The slots have nothing to do, and say nothing.
        gates = app._application._gates
        eventually(
            lambda: any(gate._driver.begun for gate in gates.values() if isinstance(gate, LiveGate)), "slots that wait"
        )
        assert found(harness, target) == expected(50)
        app.resume()
        eventually(partial(is_found, harness, target, 100), "results after the resume")


def test_an_operator_switches_a_running_application_there_and_back(harness: Harness) -> None:
    source, target = harness.topic("in"), harness.topic("out")
    topology = counts(source, target)
    pausing = Pausing(harness.application_id, {"bootstrap.servers": harness.servers})
    sent = 0

    def execution() -> str | None:
        with KafkaAdmin({"bootstrap.servers": harness.servers}) as admin:
            planned = plan_application(topology, harness.config(), admin)
            return application_status(planned, admin, live(harness.config()), 0).subs[0].execution

    def until_it_runs(wanted: str) -> None:
        nonlocal sent
        deadline = time.monotonic() + WAIT_S
        while execution() != wanted:
            assert time.monotonic() < deadline, f"not within {WAIT_S:g} s: {wanted}"
            harness.send(source, map(record, range(sent, sent + 50)))
            sent += 50
            eventually(partial(is_found, harness, target, sent), f"results on the way to {wanted}")

    begun: list[Event] = []
    heard = {RUNNING: begun, RESTORED: list[Event]()}
    with running(harness, topology) as app:
        until_it_runs("micro-batch")
        app.set_event_listener(lambda event: heard[event.kind].append(event) if event.kind in heard else None)
        pausing.execute(Execution.AUTO)
        until_it_runs("live")
        assert app.state is ApplicationState.RUNNING, "it is the same run"
        # There and back without a record in between: nothing is read twice.
        begun.clear()
        for times, wanted in enumerate((Execution.MICRO_BATCH, Execution.AUTO, Execution.MICRO_BATCH), 1):
            pausing.execute(wanted)
            eventually(lambda times=times: len(begun) == times, f"{wanted} without a record")  # type: ignore[misc]
        until_it_runs("micro-batch")
        pausing.execute(Execution.AUTO)
        until_it_runs("live")
        anew = [one.message for one in heard[RESTORED] if "from start" in one.fields["stores"].values()]
        assert not anew, "the stores are on this disk"
    with running(harness, topology):
        harness.send(source, map(record, range(sent, sent + 50)))
        sent += 50
        eventually(lambda: found(harness, target) == expected(sent), "results after a restart")
        assert execution() == "live", "what was asked for is in force over restarts"
        pausing.execute(None)
        until_it_runs("micro-batch")
    outputs = [orjson.loads(one.value or b"")["n"] for one in harness.read(target) if one.key == b"k0"]
    assert outputs == sorted(set(outputs)), "each count was sent once"


def test_windows_and_two_sub_topologies_run_live(harness: Harness) -> None:
    source, target = harness.topic("in"), harness.topic("out")
    builder = StreamsBuilder()
    windows = TimeWindows.of_size_and_grace(100, 0)
    counted = builder.stream(source).group_by_key().windowed_by(windows).aggregate(n=agg.count()).to_stream()
    again = counted.select_key(lambda key, value: "all").repartition()
    again.group_by_key().aggregate(n=agg.sum("n")).to_stream().to(target)
    topology = builder.build()
    with running(harness, topology, execution=Execution.LIVE):
        for first in range(0, 300, 50):
            harness.send(source, map(record, range(first, first + 50)))
        eventually(lambda: bool(found(harness, target)), "results")
        eventually(lambda: max(found(harness, target).values()) >= 300, "all results")


def joined(orders: str, users: str, target: str) -> Topology:
    """Counts by the region of a user whom the order names."""
    builder = StreamsBuilder()
    by_user = builder.stream(orders).select_key(lambda key, order: order["user"])
    regions = by_user.join(builder.table(users, materialized=Materialized("users")), lambda order, user: user["region"])
    regions.group_by(lambda key, region: region).aggregate(n=agg.count()).to_stream().to(target)
    return builder.build()


def test_new_keys_and_topics_of_different_sizes_run_live(harness: Harness) -> None:
    orders, users = harness.topic("orders", partitions=3), harness.topic("users", partitions=4)
    target = harness.topic("out")
    topology = joined(orders, users, target)
    names = [f"u{number}" for number in range(9)]
    harness.send(
        users, [Sent(name.encode(), orjson.dumps({"region": f"r{at % 2}"}), 1_000) for at, name in enumerate(names)]
    )

    def order(number: int) -> Sent:
        return Sent(f"o{number}".encode(), orjson.dumps({"user": names[number % 9]}), 2_000 + number)

    def counted(numbers: int) -> dict[str, int]:
        rest = [number % 9 % 2 for number in range(numbers)]
        return {"r0": rest.count(0), "r1": rest.count(1)}

    # The users are older, so they come first.
    harness.send(orders, map(order, range(30)))
    with running(harness, topology, execution=Execution.LIVE):
        eventually(lambda: found(harness, target) == counted(30), "live results")
        harness.send(orders, map(order, range(30, 90)))
        eventually(lambda: found(harness, target) == counted(90), "live results")
    harness.send(orders, map(order, range(90, 120)))
    harness.run(topology)
    assert found(harness, target) == counted(120), "the other execution has the same plan"


def test_what_cannot_run_live_is_named_before_anything_is_written_and_can_after_a_rescale(harness: Harness) -> None:
    """A program that makes keys, and began without the topic that it would need."""
    source, target = harness.topic("in"), harness.topic("out")
    builder = StreamsBuilder()
    stream = builder.stream(source).select_key(lambda key, value: "all")
    stream.group_by_key().aggregate(n=agg.count()).to_stream().to(target)
    topology = builder.build()
    harness.send(source, map(record, range(10)))
    harness.run(topology)
    config = harness.config(available_now=False, execution=Execution.LIVE)
    app = KafkaStreams(topology, config)
    with pytest.raises(ConfigError, match=r"makes keys before .* `streams rescale TARGET` adds it"):
        app.start(harness.spark).await_termination()
    with KafkaAdmin(config.client) as admin:
        moved = LiveRescale(config, admin, LocalFiles(config.checkpoint_dir), None)
        rescaler, plan = moved.to_plan(topology, UsersChoices())
        rescaler.run()
        assert len(plan.added) == 1
        assert moved.to_plan(topology, UsersChoices())[0].waiting == []
    harness.send(source, map(record, range(10, 25)))
    with running(harness, topology, execution=Execution.LIVE):
        eventually(lambda: found(harness, target) == {"all": 25}, "live results behind those of micro-batches")


def write_by_default(harness: Harness, topic: str, records: Iterable[Sent]) -> None:
    """Writes records as a program does that says nothing of partitioners: CRC-32 decides."""
    producer = Producer({"bootstrap.servers": harness.servers})
    for one in records:
        producer.produce(topic, one.value, one.key, timestamp=one.timestamp)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("first", ["the records", pytest.param("the application", marks=pytest.mark.long)])
def test_what_confluent_kafka_writes_by_default_runs_live(harness: Harness, first: str) -> None:
    source, target = harness.topic("in", partitions=4), harness.topic("out")
    topology, sent = counts(source, target), list(map(many, range(200)))
    if first == "the records":
        write_by_default(harness, source, sent)
    with running(harness, topology, execution=Execution.LIVE):
        if first == "the application":
            time.sleep(2.0)
            write_by_default(harness, source, sent)
        eventually(lambda: sum(found(harness, target).values()) == len(sent), "live results")
        write_by_default(harness, source, sent)
        eventually(lambda: sum(found(harness, target).values()) == 2 * len(sent), "more live results")
        with KafkaAdmin(harness.config().client) as admin:
            planned = plan_application(topology, harness.config(), admin)
            (status,) = application_status(planned, admin, live(harness.config()), 0).subs
    assert (status.execution, status.placement) == ("live", "crc32")
    harness.run(topology)
    assert found(harness, target) == {f"user-{n}": 2 for n in range(200)}


def many(number: int) -> Sent:
    return Sent(f"user-{number}".encode(), orjson.dumps({"x": number}), 1_000 + number)


def test_a_key_in_another_partition_continues_in_micro_batches(harness: Harness) -> None:
    source, target = harness.topic("in"), harness.topic("out")
    topology = counts(source, target)
    with running(harness, topology, execution=Execution.AUTO):
        harness.send(source, map(record, range(50)))
        eventually(lambda: found(harness, target) == expected(50), "live results")
        for number in range(50, 60):
            one = record(number)
            harness.send(source, [Sent(one.key, one.value, one.timestamp, partition=number % 2)])
        eventually(lambda: found(harness, target) == expected(60), "results in micro-batches")


def test_a_lost_checkpoint_is_adopted_and_another_number_of_tasks_continues_behind_live_steps(harness: Harness) -> None:
    source, target = harness.topic("in"), harness.topic("out")
    topology = counts(source, target)
    with running(harness, topology, execution=Execution.LIVE):
        harness.send(source, map(record, range(100)))
        eventually(partial(is_found, harness, target, 100), "live results")
    shutil.rmtree(harness.config().checkpoint_dir)
    live = running(harness, topology, execution=Execution.LIVE)
    with pytest.raises(CheckpointMismatchError, match="there is no checkpoint"), live as app:
        app.await_termination()
    assert adopt(harness, topology) == [source]
    with running(harness, topology, execution=Execution.LIVE):
        harness.send(source, map(record, range(100, 150)))
        eventually(partial(is_found, harness, target, 150), "live results behind the adopted checkpoint")
    rescale(harness, topology, 4)
    harness.send(source, map(record, range(150, 200)))
    harness.run(topology, tasks=4)
    assert found(harness, target) == expected(200)
    outputs = [orjson.loads(one.value or b"")["n"] for one in harness.read(target) if one.key == b"k0"]
    assert outputs == sorted(set(outputs)), "each count was sent once"


def test_a_key_that_turns_up_elsewhere_is_named_and_a_rescale_brings_the_application_back(harness: Harness) -> None:
    """Another producer joins, whose function puts keys elsewhere: nothing is lost, and nothing stays slow without a word."""
    source, target = harness.topic("in", partitions=4), harness.topic("out")
    topology, sent = counts(source, target), list(map(many, range(100)))
    harness.send(source, sent)
    config = harness.config(available_now=False, execution=Execution.LIVE)
    left: list[Event] = []

    def status() -> SubStatus:
        with KafkaAdmin(config.client) as admin:
            pauses = read_pauses(LiveLog(config.client, admin), config.application_id)
            planned = plan_application(topology, config, admin)
            return application_status(planned, admin, live(config), 0, pauses).subs[0]

    with running(harness, topology, execution=Execution.LIVE) as app:
        app.set_event_listener(left.append)
        eventually(lambda: sum(found(harness, target).values()) == 100, "live results")
        assert status().left_live is None
        write_by_default(harness, source, sent)
        eventually(lambda: sum(found(harness, target).values()) == 200, "results of micro-batches")
        said = status().left_live
    assert said is not None
    assert said.record is not None
    assert (said.record[0], said.back) == (source, "")
    (event,) = [one for one in left if one.kind is LEFT_LIVE]
    assert event.fields["command"] == f"streams rescale TARGET -a {config.application_id}"
    with KafkaAdmin(config.client) as admin:
        moved = LiveRescale(config, admin, LocalFiles(config.checkpoint_dir), None)
        rescaler, plan = moved.to_plan(topology, UsersChoices())
        rescaler.run()
        moved.forget_left_live()
    assert list(plan.added.values()) == [f"no known function puts the keys of {source} into partitions"]
    write_by_default(harness, source, sent)
    with running(harness, topology, execution=Execution.LIVE):
        eventually(lambda: sum(found(harness, target).values()) == 300, "live results again")
        assert status().left_live is None
