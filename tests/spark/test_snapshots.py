"""On real Spark and Kafka: a worker takes snapshots, and a host that has lost its state starts from them."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import orjson
from typer.testing import CliRunner

from streams import Materialized, StreamsBuilder
from streams.cli.main import app
from streams.topology.topology import Topology
from tests.spark.harness import Harness, RecordedProgress, Sent
from tests.spark.restored import TASKS, differences

STORED_S = 60.0
CLI = CliRunner()


def counts(topic: str) -> Topology:
    builder = StreamsBuilder()
    builder.stream(topic).group_by_key().count(materialized=Materialized("counts"))
    return builder.build()


def streams(harness: Harness, command: str, file: Path, *options: str) -> str:
    where = ["-b", harness.servers, "-a", harness.application_id, "--base-dir", str(harness.folder)]
    result = CLI.invoke(app, [command, f"{file}:build", "--json", *where, *options])
    assert result.exit_code == 0, result.output
    return result.stdout


def snapshots(harness: Harness, file: Path, folder: Path, *options: str) -> list[dict[str, object]]:
    text = streams(harness, "snapshots", file, "--set", f"snapshot_dir={folder}", *options)
    found: list[dict[str, object]] = orjson.loads(text)
    return found


def copies_taken(progress: RecordedProgress) -> int:
    return sum(report["counters"].get("restored_from_copy", 0) for report in progress.reports)


def test_a_lost_host_starts_from_snapshots_and_from_what_a_replica_keeps(harness: Harness) -> None:
    topic = harness.topic("in")
    topology, folder = counts(topic), harness.folder / "snapshots"
    file = harness.folder / "program.py"
    file.write_text(f"from tests.spark.test_snapshots import counts\n\ndef build():\n    return counts({topic!r})\n")
    settings = {"snapshot_dir": str(folder), "snapshot_steps": 1}
    harness.send(topic, [Sent(b"key-%d" % n, b"1", 1_000 + n) for n in range(100)])
    harness.run(topology, **settings)
    # A worker stores a snapshot while its next steps run.
    deadline = time.monotonic() + STORED_S
    while len({one["task"] for one in snapshots(harness, file, folder)}) < TASKS:
        assert time.monotonic() < deadline, list(folder.rglob("*"))
        time.sleep(0.1)
    assert all(one["fault"] == "" and one["bytes"] for one in snapshots(harness, file, folder, "--verify"))
    shutil.rmtree(harness.config().state_dir)
    harness.send(topic, [Sent(b"key-%d" % n, b"1", 2_000 + n) for n in range(50, 150)])
    progress = harness.run(topology, **settings)
    assert copies_taken(progress) == TASKS
    assert differences(harness, topology, harness.folder / "rebuilt") == []
    # A replica that joins its group, brings its copies to the last commits and ends; the host then loses its state again.
    told = orjson.loads(streams(harness, "replica", file, "--once").splitlines()[-1])
    assert [(task["stores"], task["behind"], task["warm"]) for task in told["tasks"]] == [(["counts"], 0, True)] * TASKS
    shutil.rmtree(harness.config().state_dir)
    harness.send(topic, [Sent(b"key-%d" % n, b"1", 3_000 + n) for n in range(100)])
    assert copies_taken(harness.run(topology)) == TASKS
    assert differences(harness, topology, harness.folder / "rebuilt again") == []
