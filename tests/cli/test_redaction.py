"""Commands show no secret, neither in the settings that they print nor in an error about one."""

from __future__ import annotations

from pathlib import Path

import pytest

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
