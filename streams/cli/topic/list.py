"""`streams topic list`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from streams.cli.command import command
from streams.cli.connection import ClusterOptions, printable, with_embedded_default
from streams.cli.console import table_console
from streams.cli.output import print_json
from streams.cli.settings import AsJson


@command
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Also Kafka's own topics.")] = False,
    as_json: AsJson = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """List a cluster's topics, with partitions, records and, for the embedded broker, their size on disk.

    Records are counted by offsets, so there may be fewer: the end of each transaction and compacted records take an offset, too.
    """
    from streams.cluster.topics import list_topics as ask
    from streams.cluster.topics import sizes_on_disk

    given = cluster.given()
    client = with_embedded_default(given, cluster.data_dir)
    sizes = sizes_on_disk(cluster.data_dir) if "bootstrap.servers" not in given else None
    console = table_console()
    if not as_json:
        # Called first, so that the error for an unreachable cluster names its settings.
        console.print(f"Kafka: {escape(printable(client))}", highlight=False, soft_wrap=True)
    found: list[dict[str, Any]] = [
        {
            "topic": topic.name,
            "partitions": topic.partitions,
            "records": topic.offsets,
            **({} if sizes is None else {"disk_bytes": sizes.get(topic.name, 0)}),
        }
        for topic in ask(client, internal=internal)
    ]
    if as_json:
        print_json(found)
        return
    console.print(_table(found, with_sizes=sizes is not None))


def _table(found: list[dict[str, Any]], *, with_sizes: bool) -> Table:
    table = Table("Topic", box=None, header_style="bold")
    for heading in ("Partitions", "Records at most", *(("Size",) if with_sizes else ())):
        table.add_column(heading, justify="right")
    for topic in found:
        size = (decimal(topic["disk_bytes"]),) if with_sizes else ()
        records = "?" if topic["records"] is None else f"{topic['records']:,}"
        table.add_row(escape(topic["topic"]), str(topic["partitions"]), records, *size)
    return table
