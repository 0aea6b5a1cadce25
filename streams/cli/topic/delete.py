"""`streams topic delete`."""

from __future__ import annotations

from typing import Annotated

import typer

from streams.cli.command import command
from streams.cli.connection import ClusterOptions, printable
from streams.cli.topic.arguments import Topics
from streams.wording import counted


@command
def delete(
    topics: Topics,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    cluster: ClusterOptions,
) -> None:
    """Delete topics and all records in them.

    The internal topics of an application are deleted by `streams reset`, together with its state.
    """
    from state.errors import TopicNotFoundError
    from state.kafka.admin import KafkaAdmin

    client = cluster.client()
    with KafkaAdmin(client) as admin:
        found = admin.describe_topics(topics)
        for name in topics:
            if name not in found:
                raise TopicNotFoundError(name)
        if not yes:
            typer.confirm(f"Delete {', '.join(topics)} of Kafka {printable(client)}?", abort=True)
        admin.delete_topics(topics)
    typer.echo(f"{counted(len(found), 'topic')} deleted", err=True)
