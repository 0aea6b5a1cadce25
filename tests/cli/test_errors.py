"""What is wrong is told in one sentence, with the place, and without a stack trace."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

TARGET = "tests.cli.topology:build"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes a module into the working directory and tells its name."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, text: str) -> str:
        (tmp_path / f"{name}.py").write_text(text)
        return name

    yield write
    for name in [name for name in sys.modules if name.startswith("told_")]:
        del sys.modules[name]


def told(result) -> str:
    assert result.exit_code == 1, result.output
    assert "Traceback" not in result.output
    return str(result.output)


@pytest.mark.parametrize("target", [":", ":build", "a b:c", "a.:b"])
def test_what_names_no_module(streams, target: str) -> None:
    assert "names no topology: write a file, such as app.py, or a module" in told(streams("describe", target))


@pytest.mark.parametrize(
    ("name", "text", "what", "line"),
    [
        ("told_syntax", "x = 1\ndef build(:\n", "SyntaxError", 2),
        ("told_import", "x = 1\n\n1 / 0\n", "ZeroDivisionError: division by zero", 3),
        (
            "told_call",
            "from streams import StreamsBuilder\ndef build():\n    StreamsBuilder().stream('in').filtre(1)\n",
            "KStream has no 'filtre': did you mean filter",
            3,
        ),
        (
            "told_argument",
            "from streams import StreamsBuilder\ndef build():\n    return StreamsBuilder().stream('in').filter()\n",
            "missing 1 required positional argument",
            3,
        ),
    ],
)
def test_an_error_in_a_topology_is_reported_with_its_line(
    streams, module, name: str, text: str, what: str, line: int
) -> None:
    output = told(streams("describe", module(name, text)))
    assert what in output
    assert f"{name}.py, line {line}" in output


def test_a_function_with_required_arguments_is_refused(streams, module) -> None:
    """It has not run, so there is no line of it."""
    output = told(streams("describe", module("told_wants", "def build(name):\n    return name\n")))
    assert "missing 1 required positional argument: 'name' (STREAMS_TRACEBACK=1 shows" in output


def test_a_missing_attribute_is_reported(streams, module) -> None:
    assert "has no 'bild'" in told(streams("describe", module("told_attribute", "build = 1\n") + ":bild"))


@pytest.mark.parametrize("command", [("run", TARGET), ("restore", TARGET), ("reset", "app"), ("topic", "read", "t")])
def test_an_unreachable_cluster_is_reported_once(streams, capfd, monkeypatch, command: tuple[str, ...]) -> None:
    monkeypatch.setattr("streams.cluster.admin.CONNECT_S", 0.5)
    output = told(streams(*command, "-b", "127.0.0.1:1", "-X", "sasl.password=hidden"))
    assert output.count("127.0.0.1:1 did not answer") == 1
    assert "Connection refused" in output
    # librdkafka itself writes to the process's standard error.
    assert capfd.readouterr().err == ""


def test_a_folder_that_cannot_be_created_is_reported(streams, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "file/kafka: Not a directory" in told(streams("broker", "start", "-d", tmp_path / "file" / "kafka"))


def test_wrong_settings_are_reported_without_pydantics_words(
    streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "app.toml"
    file.write_text("nosuch = 1\n")
    assert "nosuch: there is no such setting" in told(streams("run", TARGET, "-c", file, "--explain"))
    with monkeypatch.context() as environment:
        environment.setenv("STREAMS_KAFKA", '{"sasl.password": "hidden"')
        output = told(streams("run", TARGET, "--explain"))
        assert "STREAMS_KAFKA or STREAMS_SPARK is not a JSON object" in output
        assert "hidden" not in output
    output = told(streams("run", TARGET, "--bad-records", "dlq", "--explain"))
    assert (
        "settings: an error policy is 'dlq', but dead_letter_topic is not set: name the topic (--dead-letter-topic"
        in output
    )


@pytest.mark.kafka
def test_a_misspelt_output_leaves_nothing_behind_in_kafka(streams, module, broker, topic) -> None:
    source = topic(1)
    name = module(
        "told_output",
        "from streams import StreamsBuilder\ndef build():\n    builder = StreamsBuilder()\n"
        f"    builder.stream('{source}').group_by_key().count().to_stream().to('no-such-output')\n"
        "    return builder.build()\n",
    )
    output = told(streams("run", name, "-a", f"{source}-app", "-b", broker.bootstrap_servers))
    assert "'no-such-output' does not exist" in output
    assert "created topic" not in output
    assert f"{source}-app" not in streams("topic", "list", "-b", broker.bootstrap_servers).output
