"""Every command explains itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from streams.cli.main import COMMANDS

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
BROKER_COMMANDS = ("fetch", "start", "stop", "status")
TOPIC_COMMANDS = ("create", "list", "describe", "send", "read", "delete")
DRILL_COMMANDS = ("list", "run")
EVERY = [
    *((name,) for name in COMMANDS),
    *(("broker", name) for name in BROKER_COMMANDS),
    *(("topic", name) for name in TOPIC_COMMANDS),
    *(("drill", name) for name in DRILL_COMMANDS),
]
WITH_JSON = [
    *(
        (name,)
        for name in (
            "check",
            "config",
            "describe",
            "diff",
            "replica",
            "reset",
            "restore",
            "run",
            "snapshots",
            "state",
            "status",
        )
    ),
    *(("topic", name) for name in ("list", "describe", "send", "read")),
    *(("drill", name) for name in DRILL_COMMANDS),
    ("broker", "status"),
]


def test_the_command_lists_all_commands(streams) -> None:
    text = streams("--help").output
    for name, command in COMMANDS.items():
        assert re.search(rf"{name}\s+{re.escape(command.help)}", text), name


@pytest.mark.parametrize("command", EVERY)
def test_every_command_and_option_has_help(streams, command: tuple[str, ...]) -> None:
    result = streams(*command, "--help")
    assert result.exit_code == 0, result.output
    assert f"Usage: streams {' '.join(command)}" in result.output
    # In the help's tables, what has no text of its own ends in its metavar or type.
    rows = re.findall(r"^│ (?:\* )?\s*(--[\w-]+.*?)│$", result.output, re.M)
    assert [row for row in rows if not re.search(r"\s{2}\S.*[.\])]\s*$", row)] == []


@pytest.mark.slow
@pytest.mark.parametrize("command", [(), *EVERY])
def test_help_has_neither_braces_nor_types_of_flags(streams, command: tuple[str, ...]) -> None:
    text = streams(*command, "--help").output
    assert not re.search(r"[{}]|<bool>|<str>", re.sub(r'\{"[^│]*', "", text)), text


@pytest.mark.parametrize("command", WITH_JSON)
def test_what_has_a_result_gives_it_as_json(streams, command: tuple[str, ...]) -> None:
    assert re.search(r"--json\s", streams(*command, "--help").output)


@pytest.mark.parametrize(
    "command", ["adopt", "config", "replica", "reset", "restore", "run", "snapshots", "state", "status"]
)
def test_options_of_an_application_are_the_same_everywhere(streams, command: str) -> None:
    text = streams(command, "--help").output
    for option in ("--application-id", "--config", "--set", "--base-dir", "--bootstrap-servers", "--property"):
        assert re.search(rf"{option}\s", text), option


@pytest.mark.parametrize("code", ["0 success", "1 failure", "2 the command line is wrong", "3 the answer is no"])
def test_the_help_tells_the_exit_codes(streams, code: str) -> None:
    assert code in " ".join(streams("--help").output.split())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("ruin",), "No such command 'ruin'. Did you mean 'run' or 'ui'?"),
        (("foo",), "No such command 'foo'."),
        (("topic", "raed"), "No such command 'raed'. Did you mean 'read'?"),
        (("run", "--taks", "3"), "No such option: --taks"),
    ],
)
def test_a_misspelt_command_is_asked_about(streams, wrong: tuple[str, ...], said: str) -> None:
    result = streams(*wrong)
    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.parametrize("command", COMMANDS)
def test_the_page_of_commands_has_every_command(command: str) -> None:
    assert f"`streams {command}" in PAGE.read_text(encoding="utf-8")


# What is wrong is told in one sentence, with the place, and without a stack trace.

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
            "filter() needs 'predicate'",
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


# `streams init` makes a project that works as it is.

ROOT = Path(__file__).parents[2]


TEMPLATES = ("plain", "joins", "lake", "typed")


_EACH = """
import os, sys
import pytest

for folder in sys.argv[1:]:
    os.chdir(folder)
    sys.path[0] = folder
    if pytest.main(["-q", "-p", "no:cacheprovider", "--rootdir", "."]):
        sys.exit(folder)
    del sys.modules["app"], sys.modules["test_app"]
"""


@pytest.mark.slow
def test_the_tests_of_a_new_project_pass(streams, tmp_path: Path) -> None:
    for template in TEMPLATES:
        assert streams("init", template, "--template", template).exit_code == 0
        assert {str(path.relative_to(template)) for path in Path(template).rglob("*") if path.is_file()} == {
            *("app.py", "test_app.py", "streams.toml", "pyproject.toml", "README.md", ".gitignore"),
            *("Dockerfile", ".dockerignore", "compose.yaml", ".github/workflows/tests.yml"),
        }
        written = "".join(path.read_text() for path in Path(template).iterdir() if path.is_file())
        assert not [word for word in ("APPLICATION", "PROJECT", "EXTRAS", "TOPICS") if word in written]
    # In one process, because importing pytest and the engine takes longer than the tests.
    command = [sys.executable, "-c", _EACH, *(str(tmp_path / template) for template in TEMPLATES)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" passed in ") == len(TEMPLATES), done.stdout


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_image_and_the_compose_file_of_a_new_project_fit_its_program(streams, template: str) -> None:
    streams("init", "_shop", "--template", template)
    project = Path("_shop")
    created = re.search(r"^streams topic create (.+)$", (project / "README.md").read_text(), re.MULTILINE)
    assert created is not None
    assert (
        f"streams topic create {created.group(1)} && exec streams run app.py" in (project / "compose.yaml").read_text()
    )
    copied = re.findall(r"^COPY (.+) \S+$", (project / "Dockerfile").read_text(), re.MULTILINE)
    assert [name for line in copied for name in line.split() if not (project / name).exists()] == ["wheels"]


@pytest.mark.slow
def test_a_new_project_can_be_installed(streams) -> None:
    streams("init", "_shop", "--template", "lake")
    build = ["pip", "wheel", "./_shop", "--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    subprocess.run([sys.executable, "-m", *build], check=True, capture_output=True)
    with zipfile.ZipFile("shop-0.1.0-py3-none-any.whl") as wheel:
        assert "app.py" in wheel.namelist()
        assert b"Requires-Dist: streams-on-spark[delta,spark]" in wheel.read("shop-0.1.0.dist-info/METADATA")


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_new_project_has_nothing_to_complain_of(streams, monkeypatch: pytest.MonkeyPatch, template: str) -> None:
    monkeypatch.delitem(sys.modules, "app", raising=False)
    streams("init", "shop", "-t", template)
    checked = streams("check", "shop/app.py")
    assert (checked.exit_code, "nothing was found" in checked.output) == (0, True), checked.output
    explained = streams("config", "shop/app.py", "-c", "shop/streams.toml", "--explain").output
    assert 'application_id = "shop"  # shop/streams.toml' in explained


@pytest.mark.slow
def test_the_program_of_a_new_project_is_a_command_of_its_own(streams, tmp_path: Path) -> None:
    streams("init", "shop")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "app.py", "--base-dir", "/dev/null/nowhere", "-b", "127.0.0.1:1"]
    done = subprocess.run(command, cwd=tmp_path / "shop", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr


def test_a_project_in_the_present_folder_needs_no_change_of_folder(streams, tmp_path: Path) -> None:
    made = streams("init", ".")
    assert f"{tmp_path.name}: app.py" in made.output
    assert "cd ." not in made.output
    assert "next: cd shop, then pytest" in streams("init", "shop").output


@pytest.mark.parametrize(("folder", "said"), [("shop", "shop already has app.py"), ("my shop", "is not a valid id")])
def test_a_project_that_cannot_be_created_is_refused_with_the_reason(
    streams, tmp_path: Path, folder: str, said: str
) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "app.py").touch()
    result = streams("init", folder)
    assert (result.exit_code, said in result.output) == (1, True), result.output


# Ways to start the command, and what it says to somebody who has no broker yet.


@pytest.mark.slow
def test_a_command_for_topics_does_not_wait_for_the_operators() -> None:
    """They would double the time that it takes to start."""
    code = "import sys, streams.cli.topic; print({'streams.api', 'streams.operators'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_package_is_the_command() -> None:
    run = subprocess.run([sys.executable, "-m", "streams", "--help"], capture_output=True, text=True, check=True)
    assert "Usage: python -m streams [OPTIONS] COMMAND" in run.stdout


def test_the_hint_to_start_a_broker_names_the_data_folder_that_was_given(streams, tmp_path: Path) -> None:
    result = streams("topic", "list", "--data-dir", tmp_path / "kafka")
    assert result.exit_code == 1
    assert f"Start one with: streams broker start --data-dir {tmp_path / 'kafka'}; or name a cluster" in result.output


def test_the_hint_to_start_a_broker_is_short_for_the_usual_data_folder(streams) -> None:
    assert "Start one with: streams broker start; or name a cluster" in streams("topic", "list").output
