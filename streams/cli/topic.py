"""`streams broker create | send | read`: topics to try a topology with, when no other Kafka tools are at hand."""

from __future__ import annotations

from typing import Annotated

import typer

from streams.cli.connection import (
    DEFAULT_DATA_DIR,
    Bootstrap,
    DataDir,
    PropertiesFile,
    Property,
    client_properties,
    with_embedded_default,
)
from streams.cli.errors import readable_errors
from streams.errors import ConfigError

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)]


@readable_errors
def create(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC", help="The topics.", show_default=False)],
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of each.")] = 1,
    bootstrap_servers: Bootstrap = None,
    properties: Property = None,
    properties_file: PropertiesFile = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Create topics; one that exists with as many partitions is left alone."""
    from state.errors import TopicMismatchError
    from state.kafka.admin import KafkaAdmin
    from state.kafka.topics import TopicSpec

    client = _client(bootstrap_servers, properties, properties_file, data_dir)
    with KafkaAdmin(client) as admin:
        try:
            admin.create_topics([TopicSpec(name, partitions) for name in topics])
        except TopicMismatchError as error:
            raise ConfigError(f"topic {error.topic!r} exists already, with {error.found} partitions") from error


@readable_errors
def send(
    topic: Topic,
    bootstrap_servers: Bootstrap = None,
    properties: Property = None,
    properties_file: PropertiesFile = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Write standard input to a topic, a record for each line: key, tab, value, or only a value."""
    from streams.broker.lines import write_lines

    client = _client(bootstrap_servers, properties, properties_file, data_dir)
    count = write_lines(client, topic, typer.get_binary_stream("stdin"))
    typer.echo(f"{count} records written to {topic}", err=True)


@readable_errors
def read(
    topic: Topic,
    bootstrap_servers: Bootstrap = None,
    properties: Property = None,
    properties_file: PropertiesFile = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Print the committed records of a topic, a line for each: key, tab, value."""
    from streams.broker.lines import read_lines

    for line in read_lines(_client(bootstrap_servers, properties, properties_file, data_dir), topic):
        typer.echo(line)


def _client(
    bootstrap_servers: str | None, properties: list[str] | None, properties_file: PropertiesFile, data_dir: DataDir
) -> dict[str, str]:
    from streams.broker.topics import check_reachable

    given = client_properties(bootstrap_servers, properties, properties_file)
    client = with_embedded_default(given, data_dir)
    check_reachable(client)
    return client
