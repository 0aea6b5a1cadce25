"""`streams config`: every setting with its type, default, unit and meaning, and where the values in force come from."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from streams.config import StreamsConfig, load_config
from streams.config.loading import markdown, settings
from streams.config.settings import in_words, to_milliseconds
from streams.errors import ConfigError

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
