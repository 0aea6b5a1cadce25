"""`streams broker`: a real Kafka on this machine, for development."""

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from streams.broker.cluster import BrokerStatus
from streams.broker.jars import BROKER_JARS, DELTA_JARS, JarSet, is_complete
from streams.cli.command import NOT_SAFE, application, command, option
from streams.cli.options import DEFAULT_DATA_DIR, AsJson, DataDir, pairs
from streams.cli.output import print_json, print_line, print_table
from streams.errors import ConfigError


@command
def fetch(delta: Annotated[bool, option("Also fetch the jars of Delta Lake, for Delta tables.")] = False) -> None:
    """Fetch the broker's jars into the cache folder, unless they are already there."""
    _fetch(BROKER_JARS)
    if delta:
        _fetch(DELTA_JARS)


KAFKA_PORT = 9092
"""The port that the documentation and its programs use."""


@command
def start(
    data_dir: DataDir = DEFAULT_DATA_DIR,
    port: Annotated[
        list[int] | None,
        option(
            "Port for clients; repeat it for each node. Default: as in the last start, else 9092 or a free port.",
            min=1,
            max=65535,
        ),
    ] = None,
    nodes: Annotated[int | None, option("1 or 3 nodes. Default: as in the last start, else 1.")] = None,
    heap: Annotated[str, option("Maximum Java heap of each node.")] = "512m",
    settings: Annotated[
        list[str] | None,
        option("A broker setting; may be repeated. Default: as in the last start.", "--set", metavar="KEY=VALUE"),
    ] = None,
    secure: Annotated[
        bool, option("Create a new cluster with TLS, users (SCRAM) and ACLs. An existing cluster is not changed.")
    ] = False,
    users: Annotated[
        list[str] | None,
        option("A user of the secured cluster, in addition to admin; may be repeated.", "--user", metavar="NAME"),
    ] = None,
) -> None:
    """Start a broker in the background, with its data in a folder. A running broker is not touched."""
    from streams.broker.embedded import EmbeddedBroker

    if nodes not in (None, 1, 3) or (nodes is not None and port is not None and len(port) != nodes):
        raise ConfigError("--nodes must be 1 or 3. Give --port once for each node, or not at all.")
    _fetch(BROKER_JARS, quiet=True)
    broker = EmbeddedBroker(
        data_dir,
        ports=port or None,
        nodes=nodes,
        properties=pairs(settings, "--set", "num.io.threads=8") or None,
        heap=heap,
        # Without security, users would have no effect.
        secured=secure or bool(users) or None,
        users=users or (),
        preferred_port=KAFKA_PORT,
    )
    with Console().status("Starting Kafka ..."):
        broker.start()
    _print_status(broker.status())


@command
def stop(
    data_dir: DataDir = DEFAULT_DATA_DIR,
    delete: Annotated[bool, option("Also remove the topics and their data.")] = False,
) -> None:
    """Stop the broker of a data folder."""
    from streams.broker.embedded import EmbeddedBroker

    broker = EmbeddedBroker(data_dir)
    was_running = any(node.pid is not None for node in broker.status().nodes)
    with Console().status("Stopping Kafka ..."):
        broker.stop(delete=delete)
    done = "Kafka was stopped" if was_running else "Kafka was not running"
    removed = " and its data removed" if delete else ""
    print_line(f"{done}{removed} ({data_dir}).")


@command
def status(data_dir: DataDir = DEFAULT_DATA_DIR, as_json: AsJson = False) -> None:
    """Show whether the broker of a data folder is running, and its addresses. Exit code 3 if it is not running."""
    from streams.broker.embedded import EmbeddedBroker

    found = EmbeddedBroker(data_dir).status()
    if as_json:
        print_json(_as_dict(found))
    else:
        _print_status(found)
    if not found.running:
        raise typer.Exit(NOT_SAFE)


def _fetch(jars: JarSet, *, quiet: bool = False) -> None:
    from streams.broker.jars import fetch_jars

    if not is_complete(jars.folder):
        with Console().status(f"Fetching the jars of {jars.title} (once, about a minute) ...") as spinner:
            fetch_jars(lambda line: spinner.update(f"Fetching {jars.title}: {escape(line.strip()[:60])}"), jars)
    if jars is BROKER_JARS:
        _record_classes()
    if not quiet:
        print_line(f"The jars of {jars.title} are in {jars.folder}.")


def _record_classes() -> None:
    from streams.broker.class_archive import is_whole
    from streams.broker.node import class_archive

    if not is_whole(class_archive()):
        from streams.broker.embedded import record_classes

        with Console().status("Recording the broker's classes (once), so that it starts with less CPU ..."):
            record_classes()


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


def _print_status(found: BrokerStatus) -> None:
    if not found.nodes:
        print_line(f"No cluster in {found.data_dir}.")
        return
    print_line(f"Kafka {found.kafka_version} in {found.data_dir}")
    rows = []
    for node in found.nodes:
        state = "[red]stopped[/]" if node.pid is None else "[green]running[/]" if node.answers else "[yellow]silent[/]"
        rows.append((str(node.node_id), f"127.0.0.1:{node.port}", str(node.pid or "-"), state))
    print_table(("Node", "Address", "Process", "State"), rows)
    if found.running:
        print_line(f"bootstrap servers: {found.bootstrap_servers}")
    for file in found.client_files:
        print_line(f"client of user {file.stem}: --properties-file {file}")


app = application(
    "A real Kafka broker on this machine, for development. It needs only Java. `streams topic` creates and reads its topics.",
    {"fetch": fetch, "start": start, "stop": stop, "status": status},
)
