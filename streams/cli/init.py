"""`streams init`: a project to begin with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from streams.cli.command import argument, command
from streams.errors import ConfigError
from streams.topology.naming import wrong_application_id


@command
def init(
    folder: Annotated[Path, argument("The project's folder: a new one, or one without these files.", metavar="FOLDER")],
) -> None:
    """Create a project: a topology (app.py), its test (test_app.py), settings (streams.toml) and a README.

    The folder's name is the application id. The test passes without changes: pytest FOLDER.
    """
    name = folder.absolute().name
    if (wrong := wrong_application_id(name)) is not None:
        raise ConfigError(f"The folder's name becomes the application id, and {name!r} cannot be one: {wrong}.")
    there = [file for file in FILES if (folder / file).exists()]
    if there:
        raise ConfigError(f"{folder} has {', '.join(there)} already: give a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in FILES.items():
        (folder / file).write_text(text.replace("APPLICATION", name), encoding="utf-8")
    typer.echo(f"{name}: {', '.join(FILES)} written to {folder.absolute()}")
    steps = "pytest (pip install pytest, if it is missing); README.md says how to run the application"
    typer.echo(f"next: {steps}" if folder.samefile(".") else f"next: cd {folder}, then {steps}")


# --- The files of a new project, as `streams init` writes them; `APPLICATION` stands for the project's name.

_APP = '''\
"""Counts the visits of each page by the minute."""

from datetime import timedelta

from streams import Materialized, StreamsBuilder, TimeWindows, Topology


def build() -> Topology:
    """Counts the records of the topic `visits`, by key and minute of their event time, into the topic `visits-by-minute`."""
    builder = StreamsBuilder()
    (
        builder.stream("visits")
        .group_by_key()
        .windowed_by(TimeWindows.of_size_and_grace(timedelta(minutes=1), timedelta(seconds=10)))
        .count(materialized=Materialized(name="visits-by-minute"))
        .to_stream()
        .map(lambda page, count: (page.key, {"minute": page.window.start, "visits": count}))
        .to("visits-by-minute")
    )
    return builder.build()


if __name__ == "__main__":
    from streams.cli.run import run_main

    run_main(build, "APPLICATION")
'''

_TEST = '''\
"""The topology, tested without Kafka and without Spark."""

from app import build

from streams.testing import TopologyTestDriver


def test_visits_are_counted_by_the_minute() -> None:
    with TopologyTestDriver(build()) as driver:
        visits = driver.create_input_topic("visits")
        counts = driver.create_output_topic("visits-by-minute")
        visits.pipe_input("/home", {"user": "ann"}, timestamp=1_000)
        visits.pipe_input("/home", {"user": "bob"}, timestamp=59_000)
        visits.pipe_input("/home", {"user": "ann"}, timestamp=60_000)
        assert counts.read_key_values_to_list()[-2:] == [
            ("/home", {"minute": 0, "visits": 2}),
            ("/home", {"minute": 60_000, "visits": 1}),
        ]
'''

_SETTINGS = """\
# Settings of the application. `streams config` prints all of them with their defaults.
application_id = "APPLICATION"

# The Kafka cluster. Without it, the broker is used that `streams broker start` has started in this folder.
#bootstrap_servers = "localhost:9092"

# Records that cannot be read or processed: fail (default), skip, or dlq.
#deserialization = "dlq"
#processing = "dlq"
#dead_letter_topic = "APPLICATION-dead-letters"

#[kafka]
#"security.protocol" = "SASL_SSL"
"""

_README = """\
# APPLICATION

`app.py` has the topology, `test_app.py` its test (`pip install pytest`, then `pytest`), `streams.toml` the settings.

Run it on this machine; only Java is needed besides:

```
streams broker start
streams topic create visits visits-by-minute
echo '{"key": "/home", "value": {"user": "ann"}, "timestamp": 1700000000000}' | streams topic send visits --json
streams run app.py -c streams.toml --available-now
streams topic read visits-by-minute
streams state app.py visits-by-minute -c streams.toml
streams status app.py -c streams.toml
streams broker stop
```

Without `--available-now` it runs until Ctrl-C. The first run on a machine compiles for half a minute before it reads anything.
`python app.py` and `spark-submit app.py` take the options of `streams run`, too. `streams check app.py` looks for what will
hurt later, `streams describe app.py` shows the topology.
"""

FILES: Mapping[str, str] = {"app.py": _APP, "test_app.py": _TEST, "streams.toml": _SETTINGS, "README.md": _README}
"""Name -> text."""
