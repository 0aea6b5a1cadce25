"""Passwords that others can read are warned about, by name and without their value."""

from pathlib import Path

import pytest

from tests.cli.conftest import Command


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
