"""`streams broker` and `streams topic` as their users see them."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner, Result

from streams.broker import EmbeddedBroker, fetch_jars
from streams.broker.jars import jar_dir
from streams.cli.main import app
from streams.cluster import admin as cluster_admin


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch):
    """Runs the command in this process, on a wide terminal and without settings of the person who runs the tests."""
    monkeypatch.delenv("STREAMS_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.delenv("STREAMS_BROKER_DIR", raising=False)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str | int | Path, answer: str = "") -> Result:
        return CliRunner().invoke(app, [str(argument) for argument in arguments], input=answer)

    return run


def test_help_names_the_commands_without_importing_what_they_need() -> None:
    program = (
        "import sys; from typer.testing import CliRunner; from streams.cli.main import app\n"
        "print(CliRunner().invoke(app, ['--help']).output)\n"
        "heavy = {'confluent_kafka', 'pyspark', 'pandas', 'numpy', 'pyarrow', 'numba', 'streams.config', 'streams.cli.broker'}\n"
        "print('heavy:', sorted(heavy & set(sys.modules)))"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "broker" in output
    assert "heavy: []" in output


def test_an_unknown_command_is_refused(streams) -> None:
    result = streams("brokre")
    assert result.exit_code == 2
    assert "No such command 'brokre'. Did you mean 'broker'?" in result.output


@pytest.mark.kafka
def test_start_status_topics_stop(streams, tmp_path: Path) -> None:
    data_dir = tmp_path / "kafka"
    assert streams("broker", "status", "-d", data_dir).exit_code == 3
    try:
        started = streams("broker", "start", "-d", data_dir, "--heap", "256m", "--set", "num.io.threads=3")
        assert started.exit_code == 0, started.output
        (servers,) = re.findall(r"bootstrap servers: (\S+)", started.output)
        assert servers == EmbeddedBroker(data_dir).bootstrap_servers
        assert "num.io.threads=3\n" in (data_dir / "node-1" / "server.properties").read_text()

        found = json.loads(streams("broker", "status", "-d", data_dir, "--json").output)
        assert (found["running"], found["bootstrap_servers"]) == (True, servers)
        status = streams("broker", "status", "-d", data_dir)
        assert (status.exit_code, "running" in status.output) == (0, True)

        listed = streams("topic", "list", "-d", data_dir)
        assert (listed.exit_code, servers in listed.output) == (0, True), listed.output

        stopped = streams("broker", "stop", "-d", data_dir)
        assert (stopped.exit_code, "was stopped" in stopped.output) == (0, True)
        assert streams("broker", "status", "-d", data_dir).exit_code == 3
        assert "was not running and its data removed" in streams("broker", "stop", "-d", data_dir, "--delete").output
        assert not data_dir.exists()
    finally:
        EmbeddedBroker(data_dir).stop(delete=True)


def test_topics_shows_partitions_records_and_size(streams, broker: EmbeddedBroker, topic) -> None:
    letters, empty = topic(2), topic(3)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
    for number in range(1500):
        producer.produce(letters, b"x" * 100, partition=number % 2)
    assert producer.flush(120) == 0

    result = streams("topic", "list", "-d", broker.data_dir)

    rows = {line.split()[0]: line.split()[1:] for line in result.output.splitlines() if line.strip()}
    assert rows[letters][:2] == ["2", "1,500"]
    assert float(rows[letters][2]) > 150
    assert rows[letters][3] == "kB"
    assert rows[empty] == ["3", "0", "0", "bytes"]
    assert not any(name.startswith("__") for name in rows)
    by_address = streams("topic", "list", "-b", broker.bootstrap_servers)
    assert "1,500" in by_address.output
    assert "Size" not in by_address.output


@pytest.mark.kafka
def test_create_send_read(streams, broker: EmbeddedBroker, topic, tmp_path: Path) -> None:
    name = f"{topic(1)}-made"
    made = streams("topic", "create", name, "--partitions", 2, "-d", broker.data_dir)
    assert made.exit_code == 0, made.output
    assert streams("topic", "create", name, "--partitions", 2, "-d", broker.data_dir).exit_code == 0
    other = streams("topic", "create", name, "-d", broker.data_dir)
    assert (other.exit_code, "already exists, with 2 partitions" in other.output) == (1, True)

    lines = ['k\t{"a": "\u00e4"}', "only a value", "", "k\ttwo\ttabs"]
    sent = streams("topic", "send", name, "-d", broker.data_dir, answer="\n".join(lines) + "\n")
    assert (sent.exit_code, "3 records written" in sent.output) == (0, True), sent.output
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(30)
    for value, end in (("committed", producer.commit_transaction), ("aborted", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(name, value, b"\xff")
        producer.flush(30)
        end(30)

    result = streams("topic", "read", name, "-b", broker.bootstrap_servers)
    assert result.exit_code == 0, result.output
    assert sorted(result.output.splitlines()) == sorted(["\\xff\tcommitted", *filter(None, lines)])


@pytest.mark.kafka
def test_a_record_keeps_time_headers_and_nulls(streams, broker: EmbeddedBroker, topic) -> None:
    name = topic(2)
    line = {
        "key": "k",
        "value": None,
        "timestamp": 1_700_000_000_000,
        "headers": [["h", "1"], ["h", None]],
        "partition": 1,
    }
    for form, text in (("--json", json.dumps(line)), ("--timestamps", "2023-11-14T22:13:20Z\tk\t\x1b[2J")):
        sent = streams("topic", "send", name, form, "-d", broker.data_dir, answer=f"{text}\n")
        assert sent.exit_code == 0, sent.output

    read = streams("topic", "read", name, "--json", "--partition", 1, "-n", 1, "-d", broker.data_dir)
    assert json.loads(read.output.splitlines()[0]) == {**line, "topic": name, "offset": 0}
    shown = streams("topic", "read", name, "--timestamps", "--headers", "-d", broker.data_dir)
    assert "2023-11-14T22:13:20.000Z\th=1,h=null\tk\tnull" in shown.output.splitlines()
    assert "2023-11-14T22:13:20.000Z\t-\tk\t\\x1b[2J" in shown.output.splitlines()


@pytest.mark.kafka
def test_create_list_describe_delete(streams, broker: EmbeddedBroker, topic) -> None:
    name, place = f"{topic(1)}-whole-life", ("-d", broker.data_dir)
    made = streams("topic", "create", name, "--partitions", 2, "--config", "cleanup.policy=compact", *place)
    assert (made.exit_code, made.output) == (0, f"{name}: 2 partitions\n"), made.output
    described = json.loads(streams("topic", "describe", name, "--json", *place).output)
    assert [one["end"] for one in described["partitions"]] == [0, 0]
    assert described["config"]["cleanup.policy"] == "compact"
    listed = json.loads(streams("topic", "list", "--json", *place).output)
    assert [one["partitions"] for one in listed if one["topic"] == name] == [2]

    assert streams("topic", "delete", name, *place, answer="n\n").exit_code == 1
    assert "cleanup.policy = compact" in streams("topic", "describe", name, *place).output
    deleted = streams("topic", "delete", name, "--yes", *place)
    assert (deleted.exit_code, "1 topic deleted" in deleted.output) == (0, True), deleted.output
    gone = streams("topic", "describe", name, *place)
    assert (gone.exit_code, "does not exist" in gone.output) == (1, True)


@pytest.mark.kafka
@pytest.mark.parametrize("command", ["send", "read"])
def test_a_missing_topic_is_reported_and_not_created(streams, broker: EmbeddedBroker, command: str) -> None:
    result = streams("topic", command, "no-such-topic", "-d", broker.data_dir, answer="x\n")
    assert (result.exit_code, "'no-such-topic' does not exist" in result.output) == (1, True)
    assert "no-such-topic" not in streams("topic", "list", "-d", broker.data_dir).output


@pytest.mark.kafka
def test_status_asks_kafka(streams, broker: EmbeddedBroker, topic, tmp_path: Path) -> None:
    name = topic(2)
    (tmp_path / "status_app.py").write_text(
        "from streams import StreamsBuilder\nbuilder = StreamsBuilder()\n"
        f"builder.stream({name!r}).group_by_key().count().to_stream().to('out')\n"
    )
    streams("topic", "send", name, "-d", broker.data_dir, answer="a\t1\nb\t2\n")
    arguments = ("status", tmp_path / "status_app.py", "-b", broker.bootstrap_servers, "--interval", "1ms")
    result = streams(*arguments, "--json")
    assert result.exit_code == 3
    assert "status-app-builder has not committed anything yet" in result.stderr
    (sub,) = json.loads(result.stdout)["sub_topologies"]
    assert (sub["sub_topology"], sub["lag"], sub["committed"]) == (name, 2, [])
    assert "never" in streams(*arguments).output


@pytest.mark.kafka
@pytest.mark.parametrize("partitioner", ["murmur2_random", "consistent_random", "fnv1a_random"])
def test_keys_are_sent_to_where_those_of_other_producers_are(
    streams, broker: EmbeddedBroker, topic, partitioner: str
) -> None:
    name, keys = topic(8), [f"user-{number}" for number in range(40)]
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "partitioner": partitioner})
    for key in keys:
        producer.produce(name, b"1", key)
    producer.flush(30)
    sent = streams("topic", "send", name, "-d", broker.data_dir, answer="".join(f"{key}\t2\n" for key in keys))
    assert sent.exit_code == 0, sent.output
    read = streams("topic", "read", name, "-d", broker.data_dir, "--json").output.splitlines()
    found = [json.loads(line) for line in read]
    assert len(found) == 80
    assert len({(one["key"], one["partition"]) for one in found}) == 40


def test_topics_without_any_cluster_tells_what_to_do(streams, tmp_path: Path) -> None:
    result = streams("topic", "list", "-d", tmp_path)
    assert result.exit_code == 1
    assert "streams broker start" in result.output


def test_secrets_are_masked_in_what_is_printed(streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first_contact = cluster_admin.first_contact
    monkeypatch.setattr(cluster_admin, "first_contact", lambda client, timeout_s: first_contact(client, 1.0))
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers = 127.0.0.1:1\nssl.key.password: hidden-2\nsasl.username alice\n")
    result = streams("topic", "list", "--properties-file", file, "-X", "sasl.password=hidden-1")
    assert result.exit_code == 1
    assert "hidden" not in result.output
    assert "sasl.password=****" in result.output
    assert "sasl.username=alice" in result.output
    assert "127.0.0.1:1 did not answer" in result.output


def test_an_unknown_property_is_reported(streams) -> None:
    result = streams("topic", "list", "-b", "127.0.0.1:1", "-X", "no.such=1")
    assert result.exit_code == 1
    assert 'No such configuration property: "no.such"' in result.output


@pytest.mark.kafka
def test_fetch_does_nothing_when_all_is_there(streams) -> None:
    fetch_jars()
    before = jar_dir().stat().st_mtime_ns
    result = streams("broker", "fetch")
    assert (result.exit_code, str(jar_dir()) in result.output) == (0, True)
    assert jar_dir().stat().st_mtime_ns == before
