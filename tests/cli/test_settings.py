"""Where the settings of a command come from, and which cluster it finds."""

import json
from pathlib import Path

import pytest

from streams.cli.options import ApplicationOptions, other_settings
from streams.config import StreamsConfig, load_config
from streams.errors import ConfigError

TARGET = "tests.cli.topology:build"


def explained(result) -> dict[str, object]:
    assert result.exit_code == 0, result.output
    return {name: found["value"] for name, found in json.loads(result.output).items()}


def test_later_sources_win(streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert explained(streams("run", TARGET, "--explain", "--json"))["application_id"] == "tests.cli.topology-build"
    file = tmp_path / "app.toml"
    file.write_text(
        'application_id = "filed"\nbootstrap_servers = "file:1"\ntasks = 3\n[kafka]\n"sasl.password" = "pw"\n'
    )
    found = explained(streams("run", TARGET, "--explain", "--json", "-c", file))
    assert (found["application_id"], found["bootstrap_servers"], found["tasks"]) == ("filed", "file:1", 3)
    assert "pw" not in found["kafka"].values()
    monkeypatch.setenv("STREAMS_APPLICATION_ID", "env")
    monkeypatch.setenv("STREAMS_BOOTSTRAP_SERVERS", "env:1")
    found = explained(streams("run", TARGET, "--explain", "--json", "-c", file))
    assert (found["application_id"], found["bootstrap_servers"]) == ("env", "env:1")
    found = explained(
        streams("run", TARGET, "--explain", "--json", "-c", file, "-a", "opt", "-b", "opt:1", "--set", "tasks=5")
    )
    assert (found["application_id"], found["bootstrap_servers"], found["tasks"]) == ("opt", "opt:1", 5)


def test_the_option_wins_over_the_files_client_property(tmp_path: Path) -> None:
    file = tmp_path / "app.toml"
    file.write_text('[kafka]\n"bootstrap.servers" = "file:1"\n')
    assert ApplicationOptions(config=file).load("app").client["bootstrap.servers"] == "file:1"
    assert ApplicationOptions(bootstrap_servers="opt:1", config=file).load("app").client["bootstrap.servers"] == "opt:1"


def test_without_any_cluster_it_says_what_to_do(streams) -> None:
    result = streams("run", TARGET)
    assert result.exit_code == 1
    assert "ConfigError: No Kafka cluster is given" in result.output
    assert "streams broker start" in result.output
    with pytest.raises(ConfigError, match="no Kafka cluster is given"):
        _ = StreamsConfig(application_id="app").client


@pytest.mark.kafka
def test_the_embedded_broker_is_the_default(streams, broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMS_BROKER_DIR", str(broker.data_dir))
    found = explained(streams("run", TARGET, "--explain", "--json"))
    assert found["bootstrap_servers"] == broker.bootstrap_servers
    assert explained(streams("run", TARGET, "--explain", "--json", "-b", "other:1"))["bootstrap_servers"] == "other:1"


def test_other_settings_are_parsed_and_checked() -> None:
    given = ["max_future_ms=none", "bulk_io=false", "spark.ui.enabled=true", "state_dir=/x"]
    assert other_settings(given) == {
        "max_future_ms": "none",
        "bulk_io": False,
        "spark": {"spark.ui.enabled": "true"},
        "state_dir": Path("/x"),
    }
    assert StreamsConfig(application_id="a").max_future_ms == 24 * 60 * 60 * 1000
    assert load_config(options={"application_id": "a", **other_settings(given[:1])}).max_future_ms is None
    for wrong, said in (
        ("tasks", "NAME=VALUE"),
        ("tusks=1", "no such setting"),
        ("tasks=many", "tasks=many: .*integer"),
        ("taks=3", "Did you mean 'tasks'"),
        ("trigger_interval_ms=5x", "is not a duration: write 500ms, 5s"),
    ):
        with pytest.raises(ConfigError, match=said):
            other_settings([wrong])


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nowhere:build", "there is no module 'nowhere'"),
        ("tests.cli.topology:ruin", "has no 'ruin'"),
        ("tests.cli.topology:JsonSerde", "is a JsonSerde, not a Topology"),
        ("tests.cli.topologi", "there is no module 'tests.cli.topologi'"),
        ("tests.cli.topology:biuld", "Did you mean 'build'?"),
        ("nowhere.py", "there is no file nowhere.py"),
        ("app.py:a-b", "'a-b' is not a name of Python"),
    ],
)
def test_a_wrong_topology_is_reported(streams, target: str, said: str) -> None:
    result = streams("describe", target)
    assert (result.exit_code, said in result.output) == (1, True), result.output


@pytest.mark.parametrize(
    ("options", "policies"),
    [
        (("--bad-records", "skip"), ("skip", "skip", "skip", "skip")),
        (("--processing-policy", "skip"), ("fail", "skip", "fail", "fail")),
        (
            ("--bad-records", "skip", "--production-policy", "dlq", "--dead-letter-topic", "dead"),
            ("skip", "skip", "dlq", "skip"),
        ),
        (
            ("--deserialization-policy", "skip", "--future-policy", "skip", "--set", "processing=skip"),
            ("skip", "skip", "fail", "skip"),
        ),
    ],
)
def test_each_policy_has_an_option_and_all_have_one(
    streams, options: tuple[str, ...], policies: tuple[str, ...]
) -> None:
    found = explained(streams("run", TARGET, "--explain", "--json", *options))
    assert tuple(found[name] for name in ("deserialization", "processing", "production", "future")) == policies


def test_an_interval_has_a_unit(streams) -> None:
    found = explained(streams("run", TARGET, "--explain", "--json", "--trigger-interval-ms", "5s"))
    assert found["trigger_interval_ms"] == 5_000
