"""`streams describe --format json` and `streams diff`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from streams import ConfigError, StreamsBuilder, TopologyError
from streams.application.prepare import plan_application
from streams.cli.main import app
from streams.cli.options import other_settings
from streams.config import StreamsConfig

TARGET = "topologies.word_count:build"


def streams(*arguments: str):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


@pytest.fixture
def old(tmp_path: Path) -> Path:
    result = streams("describe", "--format", "json", TARGET)
    assert result.exit_code == 0, result.output
    file = tmp_path / "old.json"
    file.write_text(result.output)
    return file


def test_the_same_program_is_safe(old: Path) -> None:
    result = streams("diff", str(old), TARGET)
    assert (result.exit_code, result.output.strip()) == (
        0,
        "no changes: safe; the engine starts, and goes on with the state",
    )


def test_a_renamed_store_is_reported(old: Path) -> None:
    old.write_text(old.read_text().replace('"word-counts"', '"words"'))
    result = streams("diff", str(old), TARGET)
    assert result.exit_code == 3
    assert "loses state  lines: store 'words' is gone" in result.output
    assert "Materialized(name='words')" in result.output
    assert result.output.strip().endswith("changes: loses state; the engine refuses to start")
    assert result.output.count("The engine refuses to start") == 1


def test_the_result_is_json_for_programs(old: Path) -> None:
    old.write_text(old.read_text().replace('"word-counts"', '"words"'))
    result = streams("diff", str(old), TARGET, "--json")
    assert result.exit_code == 3
    found = json.loads(result.output)
    assert (found["verdict"], found["engine"]) == ("loses state", "the engine refuses to start")
    assert {"severity": "loses state", "where": "lines", "what": "store 'words'"}.items() <= found["changes"][0].items()


@pytest.mark.parametrize(
    ("text", "said"), [("{", "is not JSON"), ("[1]", "not a description"), (None, "cannot be read")]
)
def test_files_that_are_none(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "old.json"
    if text is not None:
        file.write_text(text)
    result = streams("diff", str(file), TARGET)
    assert result.exit_code == 1
    assert said in result.output


def test_explicit_naming_is_a_setting() -> None:
    config = StreamsConfig(application_id="app", ensure_explicit_naming=True)
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count()
    nothing_asked: Any = None
    with pytest.raises(TopologyError, match="ensure_explicit_naming is on"):
        plan_application(builder.build(), config, nothing_asked)
    assert other_settings(["ensure_explicit_naming=true"]) == {"ensure_explicit_naming": True}
    with pytest.raises(ConfigError):
        other_settings(["ensure_explicit_naming=perhaps"])


def test_two_programs_in_place_of_a_description_get_the_command_that_makes_one(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text('"""A program."""\n')
    result = streams("diff", str(tmp_path / "app.py"), TARGET)
    assert result.exit_code == 1
    assert "`streams describe --format json`" in result.output
