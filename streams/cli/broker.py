"""`streams broker`: a real Kafka on this machine, for development."""

from typing import Annotated

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from streams.broker.jars import KAFKA_VERSION, is_complete, jar_dir
from streams.broker.record import BrokerStatus
from streams.cli.connection import (
    DEFAULT_DATA_DIR,
    Bootstrap,
    DataDir,
    PropertiesFile,
    Property,
    client_properties,
    printable,
    with_embedded_default,
)
from streams.cli.errors import readable_errors
from streams.cli.topic import create, read, send
from streams.errors import ConfigError

_NOT_RUNNING = 3
"""Exit code of `status` when the broker does not run, as init scripts have it."""

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="A real Kafka on this machine, for development. Needs Java only."
)


@app.command()
@readable_errors
def fetch() -> None:
    """Fetch the broker's jars into the cache folder; does nothing when they are there."""
    _fetch(Console())


@app.command()
@readable_errors
def start(
    data_dir: DataDir = DEFAULT_DATA_DIR,
    port: Annotated[
        list[int] | None,
        typer.Option(min=1, max=65535, help="Port for clients, once for each node. Default: as before, or free ones."),
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="1 or 3 nodes. Default: as before, or 1.")] = None,
    heap: Annotated[str, typer.Option(help="Java's largest heap for each node.")] = "512m",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A broker setting; may be repeated. Default: as before."),
    ] = None,
) -> None:
    """Start a broker in the background, with its data in a folder; a broker that runs already is left alone."""
    from streams.broker.embedded import EmbeddedBroker

    if nodes not in (None, 1, 3) or (nodes is not None and port is not None and len(port) != nodes):
        raise ConfigError("--nodes is 1 or 3, and --port is given once for each node, or not at all.")
    console = Console()
    _fetch(console, quiet=True)
    broker = EmbeddedBroker(data_dir, ports=port or None, nodes=nodes, properties=_broker_settings(settings), heap=heap)
    with console.status("Starting Kafka ..."):
        broker.start()
    _print_status(console, broker.status())


@app.command()
@readable_errors
def stop(
    data_dir: DataDir = DEFAULT_DATA_DIR,
    delete: Annotated[bool, typer.Option("--delete", help="Remove the topics and their data, too.")] = False,
) -> None:
    """Stop the broker of a data folder."""
    from streams.broker.embedded import EmbeddedBroker

    console = Console()
    broker = EmbeddedBroker(data_dir)
    was_running = any(node.pid is not None for node in broker.status().nodes)
    with console.status("Stopping Kafka ..."):
        broker.stop(delete=delete)
    done = "Kafka was stopped" if was_running else "Kafka was not running"
    removed = " and its data removed" if delete else ""
    console.print(f"{done}{removed} ({escape(str(data_dir))}).", highlight=False, soft_wrap=True)


@app.command()
@readable_errors
def status(data_dir: DataDir = DEFAULT_DATA_DIR) -> None:
    """Show whether the broker of a data folder runs, and where; exit code 3 when it does not."""
    from streams.broker.embedded import EmbeddedBroker

    found = EmbeddedBroker(data_dir).status()
    _print_status(Console(), found)
    if not found.running:
        raise typer.Exit(_NOT_RUNNING)


@app.command()
@readable_errors
def topics(
    bootstrap_servers: Bootstrap = None,
    properties: Property = None,
    properties_file: PropertiesFile = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    internal: Annotated[bool, typer.Option("--internal", help="Also Kafka's own topics.")] = False,
) -> None:
    """List a cluster's topics, with partitions, records and, for the embedded broker, their size on disk."""
    from streams.broker.topics import list_topics, sizes_on_disk

    given = client_properties(bootstrap_servers, properties, properties_file)
    client = with_embedded_default(given, data_dir)
    sizes = sizes_on_disk(data_dir) if "bootstrap.servers" not in given else None
    console = Console()
    console.print(f"Kafka: {escape(printable(client))}", highlight=False, soft_wrap=True)
    table = Table("Topic", box=None, header_style="bold")
    for heading in ("Partitions", "Records", *(("Size",) if sizes is not None else ())):
        table.add_column(heading, justify="right")
    for topic in list_topics(client, internal=internal):
        size = () if sizes is None else (decimal(sizes.get(topic.name, 0)),)
        records = "?" if topic.offsets is None else f"{topic.offsets:,}"
        table.add_row(escape(topic.name), str(topic.partitions), records, *size)
    console.print(table)


app.command()(create)
app.command()(send)
app.command()(read)


def _fetch(console: Console, *, quiet: bool = False) -> None:
    from streams.broker.fetch import fetch_jars

    folder = jar_dir()
    if not is_complete(folder):
        with console.status(f"Fetching the jars of Kafka {KAFKA_VERSION} (once, about a minute) ...") as spinner:
            folder = fetch_jars(
                lambda line: spinner.update(f"Fetching Kafka {KAFKA_VERSION}: {escape(line.strip()[:60])}")
            )
    if not quiet:
        console.print(
            f"The jars of Kafka {KAFKA_VERSION} are in {escape(str(folder))}.", highlight=False, soft_wrap=True
        )


def _broker_settings(texts: list[str] | None) -> dict[str, str] | None:
    if not texts:
        return None
    settings = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise ConfigError(f"--set needs KEY=VALUE, such as num.io.threads=8, not '{text}'.")
        settings[key] = value
    return settings


def _print_status(console: Console, found: BrokerStatus) -> None:
    if not found.nodes:
        console.print(f"No cluster in {escape(str(found.data_dir))}.", highlight=False, soft_wrap=True)
        return
    table = Table("Node", "Address", "Process", "State", box=None, header_style="bold")
    for node in found.nodes:
        state = "[red]stopped[/]" if node.pid is None else "[green]running[/]" if node.answers else "[yellow]silent[/]"
        table.add_row(str(node.node_id), f"127.0.0.1:{node.port}", str(node.pid or "-"), state)
    console.print(f"Kafka {found.kafka_version} in {escape(str(found.data_dir))}", highlight=False, soft_wrap=True)
    console.print(table)
    if found.running:
        console.print(f"bootstrap servers: {found.bootstrap_servers}", highlight=False, soft_wrap=True)
