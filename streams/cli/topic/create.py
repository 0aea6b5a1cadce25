"""`streams topic create`."""

from __future__ import annotations

from typing import Annotated

import typer

from streams.cli.command import command
from streams.cli.connection import ClusterOptions
from streams.cli.topic.arguments import Topics, pairs
from streams.errors import ConfigError
from streams.wording import counted


@command
def create(
    topics: Topics,
    *,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of each topic.")] = 1,
    replication: Annotated[
        int, typer.Option(min=-1, help="Replicas of each partition. Default: -1, the broker's own default.")
    ] = -1,
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A topic setting, such as cleanup.policy=compact; may be repeated."),
    ] = None,
    cluster: ClusterOptions,
) -> None:
    """Create topics; an existing topic with the same number of partitions is left alone."""
    from state.errors import TopicMismatchError
    from state.kafka.admin import KafkaAdmin
    from state.kafka.topics import TopicSpec

    settings = pairs(config, "--config", "cleanup.policy=compact")
    with KafkaAdmin(cluster.client()) as admin:
        try:
            admin.create_topics([TopicSpec(name, partitions, settings, replication) for name in topics])
        except TopicMismatchError as error:
            raise ConfigError(
                f"topic {error.topic!r} exists already, with {counted(error.found, 'partition')}"
            ) from error
    for name in topics:
        typer.echo(f"{name}: {counted(partitions, 'partition')}")
