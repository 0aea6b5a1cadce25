"""Whole processes: a driver that is killed, stopped, started by spark-submit, or refuses to start."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Protocol

import orjson
import pytest
from confluent_kafka import Producer

from state.kafka.admin import KafkaAdmin
from state.kafka.topics import TopicSpec
from streams.broker import EmbeddedBroker
from streams.drills.processes import START_TIMEOUT_S, wait_until
from streams.drills.topics import OutsideReader, read_committed
from streams.driver.java import PLANNERS
from streams.driver.launch.settings import LOCAL_JAVA_OPTIONS, archive_options
from tests.spark.harness import last_per_key
from tests.spark.processes import ROOT, Application, command_lines
from tests.spark.test_operators import increasing

WORDS = [f"word-{n}" for n in range(40)]
QUICK_JAVA = LOCAL_JAVA_OPTIONS + archive_options()
"""Spark's own processes start with less CPU like this; under spark-submit the engine cannot choose it."""
STOP_S = 150.0
"""Some seconds on an idle machine; the machine of the tests may have other things to do."""


class Starter(Protocol):
    """Starts applications and ends what is left of them."""

    def __call__(self, *options: str, submit: tuple[str, ...] | None = None, topics: str = "") -> Application:
        """`streams run tests.spark.apps:counts OPTIONS`, or spark-submit with these options of its own.

        Its topics start with `topics`; default: the test's prefix.
        """


@pytest.fixture
def prefix(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> str:
    """Prefix of this test's topics, which exist."""
    name = re.sub(r"[^a-z]+", "-", request.node.name)
    with KafkaAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        admin.create_topics(TopicSpec(f"{name}.{word}", 2, {"retention.ms": "-1"}, 1) for word in ("words", "counts"))
    return name


@pytest.fixture
def start(broker: EmbeddedBroker, prefix: str, tmp_path: Path) -> Iterator[Starter]:
    started: list[Application] = []

    def starter(*options: str, submit: tuple[str, ...] | None = None, topics: str = "") -> Application:
        scripts = Path(sys.executable).parent
        if submit is None:
            command = [str(scripts / "streams"), "run", "tests.spark.apps:counts"]
        else:
            command = [str(scripts / "spark-submit"), *submit, str(ROOT / "tests/spark/apps.py")]
        common = ["-b", broker.bootstrap_servers, "-a", prefix, "--base-dir", str(tmp_path / "var")]
        settings = ["--set", "spark.ui.enabled=false", "--set", "spark.driver.memory=512m"]
        started.append(Application([*command, *common, *settings, *options], tmp_path, topics or prefix))
        return started[-1]

    yield starter
    for one in started:
        one.close()


MICRO_BATCHES = ("--continuous", "--set", "execution=micro-batch")
"""Between two of them nothing runs that a signal to Java could interrupt, which is not quiet."""


def send_words(broker: EmbeddedBroker, prefix: str, seed: int, count: int) -> Counter[bytes]:
    words = random.Random(seed).choices(WORDS, k=count)
    # Idempotent: a retry must not write a word twice.
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
    for i, word in enumerate(words):
        producer.produce(f"{prefix}.words", orjson.dumps(word), b"%d" % i, timestamp=1_000 + i)
    assert producer.flush(120) == 0
    return Counter(word.encode() for word in words)


def table_of(totals: Counter[bytes]) -> dict[bytes, bytes]:
    return {word: count.to_bytes(8, "big") for word, count in totals.items()}


def no_planners(app: Application) -> bool:
    """Whether no process is left in which Spark has planned a source and that a running query does not need."""
    lines = command_lines(app.process.pid)
    running = any("streams.engine.spark.daemon" in line for line in lines)
    return running and not any(line.endswith(PLANNERS) for line in lines)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_and_stopped_drivers_change_nothing(
    broker: EmbeddedBroker, prefix: str, start: Starter, tmp_path: Path
) -> None:
    servers, counts = broker.bootstrap_servers, f"{prefix}.counts"
    sent = send_words(broker, prefix, 1, 4000)
    follower = OutsideReader(servers, counts, 2)
    follower.start()

    # Two hundred micro-batches, so that it is not done before it is killed.
    killed = start(*MICRO_BATCHES, "--max-records-per-trigger", "20")
    killed.wait_until(lambda: len(follower.records) > 200, "no results")
    killed.kill_group()
    killed.all_gone()
    assert sum(int.from_bytes(v or b"", "big") for v in last_per_key(follower.records).values()) < sum(sent.values())

    def all_counted() -> bool:
        return last_per_key(follower.records) == table_of(sent)

    def at_rest() -> bool:
        """No micro-batch runs: one that takes longer than it is given would be interrupted, which is not quiet."""
        logs = (
            [int(file.name) for file in tmp_path.glob(f"var/checkpoint/*/*/{log}/[0-9]*")]
            for log in ("offsets", "commits")
        )
        started, done = (max(numbers, default=-1) for numbers in logs)
        return started == done

    # The same command again, then SIGTERM to the whole group when all is done, as from `timeout` and systemd: Java ends with it.
    # Then more input, and Ctrl-C. SIGTERM to the process alone ends each drill.
    for seed, stop in ((2, signal.SIGTERM), (3, signal.SIGINT)):
        running = start(*MICRO_BATCHES)
        running.wait_until(all_counted, "not all was counted")
        running.wait_until(partial(no_planners, running), "the processes that planned the source remain")
        sent.update(send_words(broker, prefix, seed, 500))
        running.wait_until(all_counted, "not all was counted")
        running.wait_until(at_rest, "the last micro-batch does not end")
        running.watch()
        os.killpg(running.process.pid, stop)
        assert running.ended(STOP_S) == 0, running.log()
        assert "stopping" in running.log()
        assert not re.search(
            "Traceback|Error|py4j|incubator|log4j|NativeCodeLoader|default log level", running.log()
        ), running.log()

    seen = follower.finish()
    assert increasing(seen)
    assert sorted(seen, key=lambda r: (r.partition, r.offset)) == read_committed(servers, counts)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_spark_submit_on_a_cluster_of_processes(broker: EmbeddedBroker, prefix: str, start: Starter) -> None:
    sent = send_words(broker, prefix, 4, 1000)
    java = ("--driver-java-options", QUICK_JAVA, "--conf", f"spark.executor.extraJavaOptions={QUICK_JAVA}")
    app = start("--available-now", submit=("--master", "local-cluster[1,1,1024]", *java))
    wait_until(lambda: app.watch() is None and app.process.poll() is not None, START_TIMEOUT_S, "no end", app.log)
    assert app.ended(STOP_S) == 0, app.log()
    assert last_per_key(read_committed(broker.bootstrap_servers, f"{prefix}.counts")) == table_of(sent)


@pytest.mark.long
def test_a_killed_java_process_is_one_sentence(broker: EmbeddedBroker, prefix: str, start: Starter) -> None:
    follower = OutsideReader(broker.bootstrap_servers, f"{prefix}.counts", 2)
    follower.start()
    send_words(broker, prefix, 5, 2000)
    app = start("--continuous", "--max-records-per-trigger", "20")
    app.wait_until(lambda: len(follower.records) > 100, "no results")
    app.kill_java()
    assert app.ended(STOP_S) == 1, app.log()
    follower.finish()
    assert "ApplicationFailedError: " in app.log(), app.log()
    said = app.log()[app.log().index("ApplicationFailedError: ") :]
    assert "Spark's Java process has ended" in said
    assert len(said.splitlines()) == 1, said
    assert "Traceback" not in app.log()
    assert "py4j" not in app.log()


@pytest.mark.long
def test_a_signal_to_the_whole_group_stops_an_application_that_starts(
    broker: EmbeddedBroker, prefix: str, start: Starter
) -> None:
    send_words(broker, prefix, 6, 100)
    app = start("--continuous")
    app.wait_until(lambda: "starting Spark" in app.log(), "it does not begin")
    os.killpg(app.process.pid, signal.SIGTERM)
    assert app.ended(STOP_S) == 0, app.log()
    assert "stopping" in app.log()
    assert not re.search("Traceback|Error|py4j", app.log()), app.log()


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "options"),
    [
        (signal.SIGTERM, ()),
        (signal.SIGINT, ()),
        # With a setting that only Spark's scripts look at.
        (signal.SIGTERM, ("--set", "spark.files.overwrite=true")),
    ],
    ids=["sigterm", "ctrl-c", "scripts"],
)
def test_a_signal_to_the_whole_group_stops_live_execution_without_pages(
    broker: EmbeddedBroker, prefix: str, start: Starter, number: signal.Signals, options: tuple[str, ...]
) -> None:
    """In the middle of its steps; Java would end below them."""
    follower = OutsideReader(broker.bootstrap_servers, f"{prefix}.counts", 2)
    follower.start()
    send_words(broker, prefix, 7, 20_000)
    app = start("--continuous", *options)
    app.wait_until(lambda: bool(follower.records), "no results")
    os.killpg(app.process.pid, number)
    assert app.ended(STOP_S) == 0, app.log()
    follower.finish()
    assert "stopping" in app.log()
    assert not re.search("Traceback|Error|Exception|py4j|\\bat org\\.apache", app.log()), app.log()


@pytest.mark.slow
@pytest.mark.parametrize("java", ["nowhere", pytest.param("", marks=pytest.mark.long)])
def test_without_java_nothing_is_created_and_one_sentence_says_so(
    prefix: str, start: Starter, monkeypatch, java: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", java and f"/{java}")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    app = start("--available-now")
    assert app.ended(STOP_S) == 1, app.log()
    (line,) = app.log().splitlines()[-1:]
    assert "Java" in line, app.log()
    assert "created topic" not in app.log()
    assert "Traceback" not in app.log()


@pytest.mark.slow
def test_a_script_with_a_class_of_its_own_from_a_shell_without_the_environment(
    broker: EmbeddedBroker, prefix: str, tmp_path: Path
) -> None:
    """`.venv/bin/spark-submit SCRIPT`, with no more than Java and the system's own programs on the PATH."""
    sent = send_words(broker, prefix, 6, 300)
    script = ROOT / "tests/spark/own_classes.py"
    submit = [str(Path(sys.executable).with_name("spark-submit")), "--driver-java-options", QUICK_JAVA, str(script)]
    command = [*submit, "-b", broker.bootstrap_servers]
    options = ["-a", prefix, "--base-dir", str(tmp_path / "var"), "--available-now", "--bad-records", "skip"]
    settings = ["--set", "spark.ui.enabled=false", "--set", "spark.driver.memory=512m"]
    kept = {name: value for name, value in os.environ.items() if name in ("HOME", "JAVA_HOME")}
    path = os.pathsep.join([str(Path(shutil.which("java") or "java").parent), "/usr/bin", "/bin"])
    app = Application([*command, *options, *settings], tmp_path, prefix, {**kept, "PATH": path})
    try:
        assert app.ended(START_TIMEOUT_S) == 0, app.log()
    finally:
        app.close()
    # What Java logs before the session gives it a level: its own version and that of the system.
    assert app.log().count(" INFO ") < 10, app.log()
    found = last_per_key(read_committed(broker.bootstrap_servers, f"{prefix}.counts"))
    assert found == {word: b"%d" % count for word, count in sent.items()}


def one_sentence(app: Application) -> str:
    """The error of an application that would not start."""
    assert app.ended(STOP_S) == 1, app.log()
    (line,) = [line for line in app.log().splitlines() if line.strip()]
    return line


def test_a_missing_topic_is_one_sentence(start: Starter) -> None:
    said = one_sentence(start("--available-now", topics="elsewhere"))
    assert said.startswith("TopicNotFoundError: topic 'elsewhere.words' does not exist")
