"""`streams broker`: a real Kafka on this machine, for development."""

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from streams.broker.jars import BROKER_JARS, DELTA_JARS, JarSet, is_complete
from streams.broker.record import BrokerStatus
from streams.cli.command import NOT_SAFE, add, application, command
from streams.cli.connection import DEFAULT_DATA_DIR, DataDir
from streams.cli.output import print_json
from streams.cli.settings import AsJson
from streams.cli.topic.arguments import pairs
from streams.errors import ConfigError

app = application(
    "A real Kafka on this machine, for development. Needs Java only. `streams topic` makes and reads its topics."
)


@command
def fetch(
    delta: Annotated[
        bool, typer.Option("--delta", help="Also fetch the jars of Delta Lake, for Delta tables.")
    ] = False,
) -> None:
    """Fetch the broker's jars into the cache folder, unless they exist."""
    _fetch(Console())
    if delta:
        _fetch(Console(), DELTA_JARS)


@command
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
    secure: Annotated[
        bool,
        typer.Option(
            "--secure", help="A new cluster with TLS, users (SCRAM) and ACLs. An existing one stays as it is."
        ),
    ] = False,
    users: Annotated[
        list[str] | None,
        typer.Option("--user", metavar="NAME", help="A user of a secured cluster, besides admin; may be repeated."),
    ] = None,
) -> None:
    """Start a broker in the background, with its data in a folder; a running broker is left alone."""
    from streams.broker.embedded import EmbeddedBroker

    if nodes not in (None, 1, 3) or (nodes is not None and port is not None and len(port) != nodes):
        raise ConfigError("--nodes is 1 or 3, and --port is given once for each node, or not at all.")
    console = Console()
    _fetch(console, quiet=True)
    broker = EmbeddedBroker(
        data_dir,
        ports=port or None,
        nodes=nodes,
        properties=pairs(settings, "--set", "num.io.threads=8") or None,
        heap=heap,
        # Users without security would be users without effect.
        secured=secure or bool(users) or None,
        users=users or (),
    )
    with console.status("Starting Kafka ..."):
        broker.start()
    _print_status(console, broker.status())


@command
def stop(
    data_dir: DataDir = DEFAULT_DATA_DIR,
    delete: Annotated[bool, typer.Option("--delete", help="Also remove the topics and their data.")] = False,
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


@command
def status(data_dir: DataDir = DEFAULT_DATA_DIR, as_json: AsJson = False) -> None:
    """Show whether the broker of a data folder is running, and where; exit code 3 if not."""
    from streams.broker.embedded import EmbeddedBroker

    found = EmbeddedBroker(data_dir).status()
    if as_json:
        print_json(_as_dict(found))
    else:
        _print_status(Console(), found)
    if not found.running:
        raise typer.Exit(NOT_SAFE)


for _name, _command in {
    "fetch": fetch,
    "start": start,
    "stop": stop,
    "status": status,
}.items():
    add(app, _name, _command)


def _fetch(console: Console, jars: JarSet = BROKER_JARS, *, quiet: bool = False) -> None:
    from streams.broker.fetch import fetch_jars

    if not is_complete(jars.folder):
        with console.status(f"Fetching the jars of {jars.title} (once, about a minute) ...") as spinner:
            fetch_jars(lambda line: spinner.update(f"Fetching {jars.title}: {escape(line.strip()[:60])}"), jars)
    if not quiet:
        console.print(f"The jars of {jars.title} are in {escape(str(jars.folder))}.", highlight=False, soft_wrap=True)


def _as_dict(found: BrokerStatus) -> dict[str, Any]:
    return {
        "running": found.running,
        "bootstrap_servers": found.bootstrap_servers,
        "cluster_id": found.cluster_id,
        "kafka_version": found.kafka_version,
        "data_dir": str(found.data_dir),
        "secured": found.secured,
        "properties_files": {file.stem: str(file) for file in found.client_files},
        "nodes": [
            {"node": node.node_id, "port": node.port, "pid": node.pid, "answers": node.answers} for node in found.nodes
        ],
    }


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
    for file in found.client_files:
        console.print(
            f"client of user {file.stem}: --properties-file {escape(str(file))}", highlight=False, soft_wrap=True
        )
