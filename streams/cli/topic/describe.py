"""`streams topic describe`."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from streams.cli.command import command
from streams.cli.connection import ClusterOptions
from streams.cli.console import table_console
from streams.cli.output import print_json, visible
from streams.cli.settings import AsJson
from streams.cli.topic.arguments import Topic
from streams.wording import counted

SHOWN = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "segment.bytes",
    "max.message.bytes",
    "min.insync.replicas",
    "message.timestamp.type",
)
"""The settings that people look for most; JSON has all settings."""


@command
def describe(topic: Topic, as_json: AsJson = False, *, cluster: ClusterOptions) -> None:
    """Show a topic: partitions with their offsets, id and settings."""
    from state.errors import TopicNotFoundError
    from state.kafka.admin import KafkaAdmin

    with KafkaAdmin(cluster.client()) as admin:
        info = admin.describe_topics([topic]).get(topic)
        if info is None:
            raise TopicNotFoundError(topic)
        places = [(topic, number) for number in range(info.partitions)]
        begins, ends, last = admin.begin_offsets(places), admin.end_offsets(places), admin.max_timestamps(places)
        partitions = [
            {"partition": at[1], "begin": begins[at], "end": ends[at], "max_timestamp": last[at]} for at in places
        ]
        found = {
            "topic": topic,
            "id": info.topic_id,
            "partitions": partitions,
            "config": dict(sorted(admin.topic_config(topic).items())),
        }
    if as_json:
        print_json(found)
    else:
        _print(found)


def _print(found: dict[str, Any]) -> None:
    console = table_console()
    console.print(f"{found['topic']} (id {found['id']})", highlight=False, markup=False)
    table = Table(box=None, header_style="bold")
    for heading in ("Partition", "Begin", "End", "At most"):
        table.add_column(heading, justify="right")
    for one in found["partitions"]:
        table.add_row(
            str(one["partition"]), f"{one['begin']:,}", f"{one['end']:,}", counted(one["end"] - one["begin"], "record")
        )
    console.print(table)
    for name in SHOWN:
        if name in found["config"]:
            console.print(f"{name} = {visible(found['config'][name])}", highlight=False, markup=False)
