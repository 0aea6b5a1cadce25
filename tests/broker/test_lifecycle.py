"""The embedded broker's life: start, stop, kill, restart, and nothing left behind."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streams.broker import BrokerStartError, DataFolderError, EmbeddedBroker, embedded, fetch_jars, node
from streams.broker.class_archive import size_note
from streams.broker.processes import started_at

pytestmark = pytest.mark.kafka

START_TIMEOUT_S = 240.0


@pytest.fixture(scope="module", autouse=True)
def _jars() -> None:
    fetch_jars()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker object for a test that starts, stops or kills it."""
    broker = EmbeddedBroker(tmp_path / "kafka", die_with_parent=True, start_timeout_s=START_TIMEOUT_S)
    yield broker
    broker.stop(delete=True)


def _pids(broker: EmbeddedBroker) -> list[int]:
    return [node.pid for node in broker.status().nodes if node.pid is not None]


def _create_topic(broker: EmbeddedBroker, name: str, replication: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, replication)])[name].result(60)


def _write(broker: EmbeddedBroker, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
    producer.produce(topic, value, timestamp=1000)
    assert producer.flush(120) == 0


def _read(broker: EmbeddedBroker, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([topic])
        messages = consumer.consume(count, timeout=120)
        assert [message.error() for message in messages] == [None] * count
        return [message.value() for message in messages]
    finally:
        consumer.close()


def test_data_id_and_address_survive_a_kill_and_a_stop(
    own_broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A file that is no archive of classes, though as large as noted: Java ignores it.
    archive = tmp_path / "other.jsa"
    archive.write_bytes(bytes(10))
    size_note(archive).write_text("10\n")
    with monkeypatch.context() as patch:
        patch.setattr(node, "class_archive", lambda: archive)
        own_broker.start()
    before = own_broker.status()
    assert before.running
    _create_topic(own_broker, "letters")
    _write(own_broker, "letters", b"a")

    own_broker.kill()
    assert not own_broker.status().running
    own_broker.start()
    _write(own_broker, "letters", b"b")
    own_broker.stop()
    own_broker.start()

    after = own_broker.status()
    assert after.running
    assert (after.cluster_id, after.bootstrap_servers) == (before.cluster_id, before.bootstrap_servers)
    assert _pids(own_broker) != [node.pid for node in before.nodes]
    # Written with a timestamp of 1970: neither retention nor restarts may drop them.
    assert _read(own_broker, "letters", 2) == [b"a", b"b"]


def test_another_process_finds_and_stops_it_and_removes_its_data_only(
    own_broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The machine's own archive may be that of an older Java, which a newer one ignores.
    archive = tmp_path / "archive" / "classes.jsa"
    for module in (node, embedded):
        monkeypatch.setattr(module, "class_archive", lambda: archive)
    embedded.record_classes()
    assert sorted(path.name for path in archive.parent.iterdir()) == ["classes.jsa", "classes.size"]
    own_broker.start()
    own_broker.start()  # a second start finds it running and leaves it alone
    (pid,) = _pids(own_broker)
    if (mapped := Path(f"/proc/{pid}/maps")).exists():
        assert str(archive) in mapped.read_text(), "it does not start from the archive of its classes"
    stranger = own_broker.data_dir / "notes.txt"
    stranger.write_text("not the broker's")

    other = EmbeddedBroker(own_broker.data_dir)
    assert _pids(other) == [pid]
    other.stop(delete=True)

    assert started_at(pid) is None
    assert list(own_broker.data_dir.iterdir()) == [stranger]
    assert other.status().nodes == ()
    other.stop()  # nothing to stop: no error


def test_a_process_id_taken_over_by_another_process_is_left_alone(own_broker: EmbeddedBroker) -> None:
    own_broker.start()
    own_broker.kill()
    record = own_broker.data_dir / "broker.json"
    content = json.loads(record.read_text())
    with subprocess.Popen(["sleep", "600"]) as innocent:
        content["nodes"][0]["process"] = {"pid": innocent.pid, "started": "long ago"}
        record.write_text(json.dumps(content))

        assert not own_broker.status().running
        own_broker.stop()

        assert innocent.poll() is None
        innocent.kill()


def test_a_wrong_setting_is_reported_with_the_brokers_own_message(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path / "kafka", properties={"num.io.threads": "many"}, die_with_parent=True)
    with pytest.raises(BrokerStartError, match=r"num\.io\.threads"):
        broker.start()
    assert broker.status().nodes == ()
    broker.stop(delete=True)


def test_a_port_in_use_is_an_error_that_leaves_nothing_running(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        broker = EmbeddedBroker(tmp_path / "kafka", ports=[taken.getsockname()[1]], die_with_parent=True)
        with pytest.raises(BrokerStartError, match="already in use") as caught:
            broker.start()
    assert "\n" not in str(caught.value), "one sentence, without Kafka's log"
    assert broker.status().nodes == ()
    broker.stop(delete=True)


def test_a_folder_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="1 node or 3"):
        EmbeddedBroker(tmp_path, nodes=2)
    with pytest.raises(DataFolderError, match="streams broker start"):
        _ = EmbeddedBroker(tmp_path).bootstrap_servers
    (tmp_path / "broker.json").write_text('{"format": 99}')
    with pytest.raises(DataFolderError, match=r"broker\.json cannot be read.*--data-dir"):
        EmbeddedBroker(tmp_path).start()


def test_it_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from streams.broker import EmbeddedBroker\n"
        "broker = EmbeddedBroker(Path(sys.argv[1]), die_with_parent=True, start_timeout_s=240)\n"
        "broker.start(); print('ready', flush=True); time.sleep(600)\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "kafka")], stdout=subprocess.PIPE)
    with starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"ready\n"
        broker = EmbeddedBroker(tmp_path / "kafka")
        (pid,) = _pids(broker)
        os.kill(starter.pid, signal.SIGKILL)
    deadline = time.monotonic() + 120
    while started_at(pid) is not None and time.monotonic() < deadline:
        time.sleep(0.1)
    assert started_at(pid) is None
    assert not broker.status().running
    broker.stop(delete=True)


@pytest.mark.slow
@pytest.mark.long
def test_three_nodes_go_on_when_one_is_killed(tmp_path: Path) -> None:
    broker = EmbeddedBroker(
        tmp_path / "kafka", nodes=3, heap="256m", die_with_parent=True, start_timeout_s=START_TIMEOUT_S
    )
    try:
        broker.start()
        _create_topic(broker, "letters", replication=3)
        _write(broker, "letters", b"a")
        broker.kill(2)
        assert [node.pid is None for node in broker.status().nodes] == [False, True, False]
        _write(broker, "letters", b"b")
        broker.start()
        assert broker.status().running
        assert _read(broker, "letters", 2) == [b"a", b"b"]
    finally:
        pids = _pids(broker)
        broker.stop(delete=True)
    assert len(pids) == 3
    assert [started_at(pid) for pid in pids] == [None] * 3
