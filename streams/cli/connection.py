"""The options by which every command finds its Kafka cluster, as librdkafka client properties.

Later sources take precedence: the properties file, `--property`, `--bootstrap-servers` (or `STREAMS_BOOTSTRAP_SERVERS`).
Without any address, commands about a running cluster use the embedded broker of the data folder. Secrets are masked wherever
properties are printed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from state.secrets import is_secret, redact, remember
from streams.broker.java_properties import parse_java_properties
from streams.broker.record import ClusterRecord
from streams.cli.command import OptionGroup
from streams.errors import ConfigError

_PANEL = "Kafka connection"
DEFAULT_DATA_DIR = Path(".kafka")

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        "-b",
        envvar="STREAMS_BOOTSTRAP_SERVERS",
        metavar="HOST:PORT,...",
        help="Addresses of the Kafka cluster.",
        rich_help_panel=_PANEL,
    ),
]
Property = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        "-X",
        metavar="KEY=VALUE",
        help="A client property of librdkafka, such as security.protocol=SASL_SSL; may be repeated.",
        rich_help_panel=_PANEL,
    ),
]
PropertiesFile = Annotated[
    Path | None,
    typer.Option(
        "--properties-file",
        metavar="FILE",
        help="Client properties as a Java properties file: the place for passwords.",
        rich_help_panel=_PANEL,
    ),
]
DataDir = Annotated[
    Path,
    typer.Option(
        "--data-dir",
        "-d",
        envvar="STREAMS_BROKER_DIR",
        metavar="DIR",
        help="Data folder of the embedded broker.",
        rich_help_panel=_PANEL,
    ),
]


@dataclass(frozen=True)
class ClusterOptions(OptionGroup):
    """Options of commands about a cluster: its address and client properties, or the embedded broker's folder."""

    bootstrap_servers: Bootstrap = None
    properties: Property = None
    properties_file: PropertiesFile = None
    data_dir: DataDir = DEFAULT_DATA_DIR

    def given(self) -> dict[str, str]:
        """The client properties that the user gave, and only those."""
        return client_properties(self.bootstrap_servers, self.properties, self.properties_file)

    def client(self) -> dict[str, str]:
        """Client properties of a cluster that answers.

        Raises:
            ConfigError: No cluster is given and no embedded broker runs, or a property is wrong.
            ClusterUnreachableError: The cluster does not answer.
        """
        from streams.cluster.topics import check_reachable

        client = with_embedded_default(self.given(), self.data_dir)
        check_reachable(client)
        return client


def client_properties(
    bootstrap_servers: str | None, properties: Sequence[str] | None, properties_file: Path | None
) -> dict[str, str]:
    """Returns the client properties the user gave, and only those.

    Raises:
        ConfigError: The file cannot be read, or a text has no `=`.
    """
    client = _read_file(properties_file) if properties_file is not None else {}
    for text in properties or ():
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            # The text is not shown: it may be a password whose key was forgotten.
            raise ConfigError(
                "--property needs KEY=VALUE, such as security.protocol=SASL_SSL; one given has no key or no '='."
            )
        client[key.strip()] = value
        if is_secret(key):
            typer.echo(
                f"warning: {key.strip()} on a command line can be read by every user of this machine (ps). Put it into "
                "--properties-file, a file that only you can read, or into the environment (STREAMS_KAFKA).",
                err=True,
            )
    if bootstrap_servers:
        client["bootstrap.servers"] = bootstrap_servers
    remember(client)
    return client


def _running(data_dir: Path) -> ClusterRecord | None:
    """The cluster of the data folder, if one of its nodes runs."""
    cluster = ClusterRecord.load(data_dir)
    return cluster if cluster is not None and any(node.is_running() for node in cluster.nodes) else None


def with_embedded_default(client: Mapping[str, str], data_dir: Path = DEFAULT_DATA_DIR) -> dict[str, str]:
    """Returns the properties with an address: their own, or else that of the running embedded broker.

    Raises:
        ConfigError: The properties have no address, and no embedded broker runs in the data folder.
    """
    if client.get("bootstrap.servers"):
        return dict(client)
    cluster = _running(data_dir)
    if cluster is None:
        there = "" if data_dir == DEFAULT_DATA_DIR else f" --data-dir {data_dir}"
        raise ConfigError(
            "No Kafka cluster is given, and no embedded broker runs in "
            f"{data_dir}. Start one with: streams broker start{there}; or name a cluster with --bootstrap-servers."
        )
    if cluster.secured and "security.protocol" not in client:
        raise ConfigError(
            f"The embedded broker in {data_dir} is secured, so a user is needed: --properties-file "
            f"{data_dir}/security/USER.properties. `streams broker status --data-dir {data_dir}` lists the users' files."
        )
    return {**client, "bootstrap.servers": cluster.bootstrap_servers}


def printable(client: Mapping[str, str]) -> str:
    """Returns the properties as one line for people, with secrets masked."""
    return ", ".join(f"{key}={value}" for key, value in sorted(redact(client).items()))


def _read_file(path: Path) -> dict[str, str]:
    try:
        client = parse_java_properties(path.read_text(encoding="utf-8"))
        if any(map(is_secret, client)) and path.stat().st_mode & 0o077:
            typer.echo(f"warning: {path} has secrets that other users can read: chmod 600 {path}", err=True)
        return client
    except OSError as error:
        raise ConfigError(f"The properties file {path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise ConfigError(f"The properties file {path} is not a Java properties file: {error}.") from error
