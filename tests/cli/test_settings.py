"""Where the settings of a command come from, and which cluster it finds."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from streams.cli.options import ApplicationOptions, other_settings
from streams.config import StreamsConfig, load_config
from streams.config.loading import markdown, settings
from streams.config.settings import in_words, to_milliseconds
from streams.errors import ConfigError
from tests.cli.conftest import Command

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
    assert "pw" not in found["kafka"].values()  # type: ignore[attr-defined]
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
        ("app.py:a-b", "'a-b' is not a Python identifier"),
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


# `streams config`: every setting with its type, default, unit and meaning, and where the values in force come from.

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_configuration_reference_is_made_from_the_settings() -> None:
    """If it differs: streams config --format markdown > docs/configuration.md."""
    assert PAGE.read_text(encoding="utf-8") == markdown()


@pytest.mark.parametrize("name", StreamsConfig.model_fields)
def test_every_setting_has_a_type_a_default_and_a_meaning(name: str) -> None:
    (found,) = [one for one in settings() if one.name == name]
    assert found.type
    assert found.default
    assert found.description.endswith(".")
    assert found.unit == ("ms" if name.endswith("_ms") else "bytes" if "bytes" in name else found.unit)


def test_the_printed_file_is_toml_of_all_settings_that_change_nothing(streams, tmp_path: Path) -> None:
    text = streams("config").output
    assert tomllib.loads(text) == {}
    uncommented = "\n".join(
        line[1:] for line in text.splitlines() if line.startswith("#") and line[1:2] not in (" ", "")
    )
    assert list(tomllib.loads(uncommented)) == [
        *(n for n in StreamsConfig.model_fields if n not in ("kafka", "spark")),
        "kafka",
        "spark",
    ]
    file = tmp_path / "all.toml"
    file.write_text(uncommented)
    assert load_config(file) == load_config(options={"application_id": "app"})


def test_editors_get_a_json_schema_of_the_file(streams) -> None:
    schema = json.loads(streams("config", "--format", "schema").output)
    assert set(schema["properties"]) == set(StreamsConfig.model_fields)
    assert schema["properties"]["mode"]["$ref"] == "#/$defs/Mode"
    assert schema["properties"]["broker_wait_ms"]["type"] == ["integer", "string"]
    assert (schema["additionalProperties"], "required" in schema) == (False, False)


def test_settings_that_are_given_are_not_commented_out(streams, tmp_path: Path) -> None:
    file = tmp_path / "app.toml"
    file.write_text('tasks = 3\n[kafka]\n"security.protocol" = "SSL"\n')
    given = tomllib.loads(streams("config", "-c", file, "--set", "mode=compat").output)
    assert given == {"tasks": 3, "mode": "compat", "kafka": {"security.protocol": "SSL"}}


def test_explain_says_where_each_value_comes_from(streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "app.toml"
    file.write_text("tasks = 3\n")
    monkeypatch.setenv("STREAMS_MODE", "compat")
    lines = streams("config", "--explain", "-c", file, "--set", "trim_delay_ms=5m").output.splitlines()
    assert f"tasks = 3  # {file}" in lines
    assert 'mode = "compat"  # environment' in lines
    assert "trim_delay_ms = 300000  # command line" in lines
    assert "broker_wait_ms = 600000  # default" in lines


def test_explain_gives_json_with_secrets_masked(streams) -> None:
    result = streams("config", "--json", "-X", "sasl.password=hidden", "-X", "sasl.username=ann")
    assert "hidden" not in result.output
    found = json.loads(result.stdout)["kafka"]
    assert (found["value"]["sasl.username"], found["from"]) == ("ann", "command line")


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("5s", 5_000),
        ("10m", 600_000),
        ("1h30m", 5_400_000),
        ("7d", 604_800_000),
        ("500 ms", 500),
        ("1.5s", 1_500),
        ("250", 250),
    ],
)
def test_durations_have_units(text: str, ms: int) -> None:
    assert to_milliseconds(text) == ms
    assert to_milliseconds(in_words(ms)) == ms


@pytest.mark.parametrize("place", ["file", "environment", "option", "python"])
def test_durations_are_taken_everywhere(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "app.toml"
    file.write_text('broker_wait_ms = "10m"\n' if place == "file" else "")
    if place == "environment":
        monkeypatch.setenv("STREAMS_BROKER_WAIT_MS", "10m")
    options = {"option": {"broker_wait_ms": "10m"}, "python": {"broker_wait_ms": timedelta(minutes=10)}}.get(place, {})
    found = load_config(file, {"application_id": "app", **options})
    assert found.broker_wait_ms == 600_000


@pytest.mark.parametrize("text", ["5x", "s", "", "1.0001s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"broker_wait_ms: .*(is not a duration: write 500ms, 5s|whole number)"):
        load_config(options={"application_id": "app", "broker_wait_ms": text})


def test_starting_offsets_take_a_duration() -> None:
    config = load_config(options={"application_id": "app", "starting_offsets": "duration:10m"})
    assert config.starting_offsets == "duration:600000"


def test_a_misspelt_setting_in_a_file_is_asked_about(tmp_path: Path) -> None:
    file = tmp_path / "app.toml"
    file.write_text("taks = 3\n")
    with pytest.raises(ConfigError, match=r"there is no such setting\. Did you mean 'tasks'\?"):
        load_config(file, {"application_id": "app"})


def test_a_misspelt_settings_file_is_asked_about(tmp_path: Path) -> None:
    (tmp_path / "streams.toml").touch()
    with pytest.raises(ConfigError, match=r"does not exist\. Did you mean 'streams.toml'\?"):
        load_config(tmp_path / "stream.toml")


# Passwords that others can read are warned about, by name and without their value.


def test_a_password_on_the_command_line_is_warned_about(streams: Command) -> None:
    result = streams("config", "--json", "-X", "sasl.password=hidden", "-X", "sasl.username=ann")
    assert result.stderr.startswith(
        "warning: sasl.password on a command line can be read by every user of this machine"
    )
    assert "sasl.username" not in result.stderr
    assert "hidden" not in result.output


@pytest.mark.parametrize(("mode", "warned"), [(0o644, True), (0o640, True), (0o600, False)])
def test_a_properties_file_with_a_password_that_others_can_read_is_warned_about(
    streams: Command, tmp_path: Path, mode: int, warned: bool
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("sasl.password=hidden\n")
    file.chmod(mode)
    result = streams("config", "--json", "--properties-file", file)
    assert ("has secrets that other users can read: chmod 600" in result.stderr) is warned


def test_a_properties_file_without_secrets_may_be_read_by_all(streams: Command, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.id=ann\n")
    file.chmod(0o644)
    assert streams("config", "--json", "--properties-file", file).stderr == ""


# Commands show no secret, neither in the settings that they print nor in an error about one.

SETTINGS = """
snapshot_dir = "s3://key:canary-1@bucket/x"
[kafka]
"sasl.password" = "canary-2"
"ssl.key.pem" = "canary-3"
[spark]
"spark.hadoop.fs.s3a.secret.key" = "canary-4"
"spark.executorEnv.DB_PASSWORD" = "canary-5"
"spark.some.url" = "https://user:canary-6@host/path"
"""


@pytest.mark.parametrize("options", [["--explain"], ["--json"], []])
def test_printed_settings_have_no_secrets(streams, options: list[str], tmp_path: Path) -> None:
    file = tmp_path / "app.toml"
    file.write_text(SETTINGS)
    result = streams("config", *options, "--config", file)
    assert result.exit_code == 0, result.output
    assert "fs.s3a.secret.key" in result.output
    assert "https://user:********@host/path" in result.output
    assert "canary" not in result.output


@pytest.mark.parametrize(
    "wrong",
    [
        ["--set", "kafka=canary"],
        ["--set", 'kafka={"sasl.password": "canary"}'],
        ["--set", "canary"],
        ["-X", "canary"],
        ["--set", "tasks=password=canary"],
        ["-X", "sasl.password=canary", "--set", "tasks=canary"],
    ],
)
def test_an_error_about_a_setting_has_no_secret(streams, wrong: list[str]) -> None:
    result = streams("run", "tests.cli.topology:build", *wrong)
    assert result.exit_code == 1
    assert "ConfigError: " in result.output
    assert "canary" not in result.output


def test_an_error_ends_with_the_command_that_explains_it(streams) -> None:
    said = streams("status", "shop", "-a", "shop").output.splitlines()
    assert said[-1].endswith(" (more: streams errors TopologyError)")
    assert "Is anything lost?" in streams("errors", "ConfigError").output
    assert "Did you mean 'ConfigError'" in streams("errors", "ConfgError").output
    assert "ConfigError" in streams("errors").output.splitlines()


@pytest.mark.parametrize(
    "text",
    [
        '[kafka]\n"sasl.password" = "what-nobody-sees"\n',
        '[kafka]\nsasl.password = "what-nobody-sees"\n',
        'ui_token = "what-nobody-sees"\n',
    ],
)
def test_a_settings_file_with_a_secret_that_others_can_read_is_warned_about(
    text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "streams.toml"
    file.write_text(f'application_id = "app"\n{text}')
    file.chmod(0o644)
    load_config(file)
    assert f"chmod 600 {file}" in caplog.text
    assert "what-nobody-sees" not in caplog.text
    caplog.clear()
    file.chmod(0o600)
    load_config(file)
    file.chmod(0o644)
    file.write_text('application_id = "app"\n')
    load_config(file)
    assert not caplog.records
