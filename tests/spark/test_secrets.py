"""A real run with canaries for secrets: they are in no line, no file and no command line, and every line is JSON."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from streams.broker import EmbeddedBroker
from streams.cluster.records import Outgoing, write_records
from tests.conftest import TopicFactory
from tests.spark import canaries

ROOT = Path(__file__).parents[2]
WAIT_S = 120.0
CANARY = b"canary-of-a-secret"
SETTINGS = """
log_format = "json"
processing = "dlq"
available_now = true
[kafka]
"sasl.password" = "canary-of-a-secret-1"
"ssl.key.password" = "canary-of-a-secret-2"
[spark]
"spark.ui.enabled" = "false"
"spark.driver.memory" = "512m"
"spark.master" = "local[2,4]"
"spark.hadoop.fs.s3a.secret.key" = "canary-of-a-secret-3"
"spark.hadoop.some.url" = "https://user:canary-of-a-secret-4@host/path"
"spark.executorEnv.DB_PASSWORD" = "canary-of-a-secret-5"
"""


class Run:
    """`streams run` of the canaries' program in a process of its own, with all of its files below one folder."""

    def __init__(self, folder: Path, servers: str, source: str, target: str, letters: str) -> None:
        self.folder, self.files = folder, folder / "files"
        self.files.mkdir()
        settings = folder / "settings" / "app.toml"
        settings.parent.mkdir()
        settings.write_text(SETTINGS)
        own = {name: value for name, value in os.environ.items() if not name.startswith("STREAMS_")}
        places = {"TMPDIR": str(self.files), "SPARK_LOCAL_DIRS": str(self.files)}
        topics = {canaries.FOLDER: str(folder), canaries.SOURCE: source, canaries.TARGET: target}
        command = [sys.executable, "-m", "streams", "run", "tests.spark.canaries:build", "--config", str(settings)]
        options = ["-b", servers, "-a", source, "--base-dir", str(self.files / "var"), "--dead-letter-topic", letters]
        with (self.files / "stdout").open("wb") as out, (self.files / "stderr").open("wb") as err:
            self.process = subprocess.Popen(
                [*command, *options], stdout=out, stderr=err, env={**own, **places, **topics}, cwd=ROOT
            )

    def wait_until_within_a_step(self) -> None:
        deadline = time.monotonic() + WAIT_S
        while not (self.folder / "entered").exists():
            assert self.process.poll() is None, (self.files / "stderr").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def finish(self) -> None:
        (self.folder / "go").touch()
        self.process.wait(WAIT_S)

    def lines(self) -> list[dict[str, Any]]:
        return [orjson.loads(line) for line in (self.files / "stderr").read_bytes().splitlines()]


@pytest.fixture
def run(broker: EmbeddedBroker, topic: TopicFactory, tmp_path: Path) -> Iterator[Run]:
    source, target, letters = topic(2, name="source"), topic(1, name="target"), topic(1, name="letters")
    records = [Outgoing(key, value, partition=0) for key, value in ((b"a", b"bad"), (b"b", b"1"), (b"c", b"2"))]
    write_records({"bootstrap.servers": broker.bootstrap_servers}, source, records)
    run = Run(tmp_path, broker.bootstrap_servers, source, target, letters)
    yield run
    run.process.kill()
    run.process.wait(WAIT_S)


def holding(files: Sequence[Path]) -> list[str]:
    """The files with a canary; one that is deleted meanwhile, or belongs to somebody else, has none that we can find."""
    found = []
    for file in files:
        try:
            if file.is_file() and CANARY in file.read_bytes():
                found.append(str(file))
        except OSError:
            continue
    return found


def test_a_secret_is_in_no_line_no_file_and_no_command_line_and_every_line_is_json(run: Run) -> None:
    run.wait_until_within_a_step()
    command_lines = sorted(Path("/proc").glob("[0-9]*/cmdline"))
    assert any(b"org.apache.spark.deploy.SparkSubmit" in file.read_bytes() for file in command_lines if file.exists())
    assert holding(command_lines) == []
    assert holding(sorted(run.files.rglob("*"))) == []
    run.finish()
    assert run.process.returncode == 0, (run.files / "stderr").read_text()
    written = sorted(run.files.rglob("*"))
    assert {"topology.json", "metadata", "CURRENT"} <= {file.name for file in written}
    assert holding(written) == []
    # The scan finds what is there.
    assert len(holding(sorted(run.folder.rglob("*")))) == 1

    lines = run.lines()
    events = [line["event"] for line in lines if "event" in line]
    assert events[0] == "starting"
    assert events[-1] == "stopped"
    assert {"topics_created", "running", "step", "dead_letters"} <= set(events)
    assert {line["application"] for line in lines if line["logger"].startswith("streams")} == {lines[-1]["application"]}
    users = [line for line in lines if line["logger"] == "users"]
    assert users[0]["message"] == "logged by a function"
    assert users[0]["sub_topology"] in {line["sub_topology"] for line in lines if line.get("event") == "step"}
    others = {line["message"] for line in lines if line["logger"] == "stderr"}
    assert {"printed by a function", "written by something in C"} <= others
    steps = [line for line in lines if line.get("event") == "step"]
    assert sum(line["records_in"] for line in steps) >= 3
