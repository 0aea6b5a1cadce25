"""The options that commands share: the Kafka cluster, and the application with its settings.

Later sources of client properties take precedence: the properties file, `--property`, `--bootstrap-servers` (or
`STREAMS_BOOTSTRAP_SERVERS`). Without any address, commands use the embedded broker that runs in the data folder. Later sources of
settings take precedence, too: defaults, the TOML file, the environment, options. Secrets are masked wherever they are printed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError

from state.secrets import is_secret, mask, redact, remember
from streams.broker.cluster import ClusterRecord
from streams.broker.secure import parse_java_properties
from streams.cli.command import OptionGroup, argument, option
from streams.cli.target import TopologyTarget
from streams.config import Layer, StreamsConfig, config_layers, config_of, warn_of_open_files
from streams.config.settings import to_milliseconds
from streams.errors import ConfigError
from streams.model.iso import moment
from streams.model.record import to_timestamp_ms
from streams.wording import did_you_mean

if TYPE_CHECKING:
    from state.commit.live import LiveKafka
    from streams.checkpoint.files import CheckpointFiles
    from streams.topology.topology import Topology

_PANEL = "Kafka connection"
DEFAULT_DATA_DIR = Path(".kafka")
_COMPLETION_S = 5.0
"""How long a shell waits for the topics of a cluster, at most."""

Bootstrap = Annotated[
    str | None,
    option(
        "Addresses of the Kafka cluster.",
        *("--bootstrap-servers", "-b"),
        envvar="STREAMS_BOOTSTRAP_SERVERS",
        metavar="HOST:PORT,...",
        panel=_PANEL,
    ),
]
Property = Annotated[
    list[str] | None,
    option(
        "A client property of librdkafka, such as security.protocol=SASL_SSL; may be repeated.",
        *("--property", "-X"),
        metavar="KEY=VALUE",
        panel=_PANEL,
    ),
]
PropertiesFile = Annotated[
    Path | None,
    option("A Java properties file with client properties. Passwords belong here.", metavar="FILE", panel=_PANEL),
]
DataDir = Annotated[
    Path, option("Data folder of the embedded broker.", "-d", envvar="STREAMS_BROKER_DIR", metavar="DIR", panel=_PANEL)
]


def complete_topics(context: typer.Context, incomplete: str) -> list[str]:
    """Completes topics in the shell, from the cluster that the command line names so far. No topics if it does not answer."""
    from confluent_kafka.admin import AdminClient

    given = context.params
    with suppress(Exception):
        properties = (given.get("bootstrap_servers"), given.get("properties"), given.get("properties_file"))
        client = with_embedded_default(client_properties(*properties), given.get("data_dir") or DEFAULT_DATA_DIR)
        found = AdminClient({**client, "log_level": 0}).list_topics(timeout=_COMPLETION_S).topics
        return sorted(name for name in found if name.startswith(incomplete))
    return []


def complete_stores(context: typer.Context, incomplete: str) -> list[str]:
    """Completes stores in the shell, from the topology that the command line names."""
    with suppress(Exception):
        # After an option that waits for its value, arguments are not assigned yet.
        target = context.params.get("target") or context.args[0]
        return sorted(name for name in TopologyTarget.parse(target).load().stores if name.startswith(incomplete))
    return []


Target = Annotated[
    str,
    argument(
        "The topology: a file (app.py) or a module (package.module), optionally with :NAME of a Topology, a StreamsBuilder or a "
        "function that returns one. Default name: build, or the only candidate.",
        metavar="TARGET",
    ),
]
AsJson = Annotated[bool, option("Print JSON, for programs.", "--json")]
Yes = Annotated[bool, option("Do not ask.", "-y")]
DryRun = Annotated[bool, option("Show what would be done, and exit.")]


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
        from streams.cluster.admin import check_reachable

        client = with_embedded_default(self.given(), self.data_dir)
        check_reachable(client)
        return client


@dataclass(frozen=True)
class ApplicationOptions(OptionGroup):
    """Options of every command about an application: its id, its cluster and its settings."""

    application_id: Annotated[
        str | None,
        option(
            "The application id: prefix of internal topics, and consumer group that shows the lag. Default: the topology's name.",
            "-a",
            metavar="ID",
        ),
    ] = None
    bootstrap_servers: Bootstrap = None
    properties: Property = None
    properties_file: PropertiesFile = None
    config: Annotated[Path | None, option("TOML file with settings.", "-c", metavar="FILE")] = None
    base_dir: Annotated[
        Path | None,
        option("Folder of local state and checkpoint. Default: var, in the working directory.", metavar="DIR"),
    ] = None
    settings: Annotated[
        list[str] | None,
        option(
            "Any other setting (see streams config), or spark.NAME=VALUE for a setting of Spark; may be repeated.",
            "--set",
            metavar="NAME=VALUE",
        ),
    ] = None

    def layers(self, default_id: str | None, options: Mapping[str, Any] | None = None) -> list[Layer]:
        """The places that settings come from; later ones take precedence."""
        client = client_properties(self.bootstrap_servers, self.properties, self.properties_file)
        given = {
            "application_id": self.application_id,
            "base_dir": self.base_dir,
            "bootstrap_servers": client.pop("bootstrap.servers", None),
            "kafka": client,
            **(options or {}),
            **other_settings(self.settings),
        }
        return config_layers(self.config, given, {} if default_id is None else {"application_id": default_id})

    def load(
        self, default_id: str | None, options: Mapping[str, Any] | None = None, *, needs_cluster: bool = True
    ) -> StreamsConfig:
        """The settings for a command.

        Raises:
            ConfigError: A setting is wrong, or no cluster is given and no embedded broker is running.
        """
        layers = self.layers(default_id, options)
        warn_of_open_files(layers)
        return config_of(with_embedded_broker(layers, needs_cluster=needs_cluster))

    def of(self, target: str, options: Mapping[str, Any] | None = None) -> tuple[Topology, StreamsConfig]:
        """Loads the topology of a target and the settings of its application, after its cluster has answered."""
        program = TopologyTarget.parse(target)
        config = reachable(self.load(program.application_id(), options))
        return program.load(), config


def client_properties(
    bootstrap_servers: str | None, properties: Sequence[str] | None, properties_file: Path | None
) -> dict[str, str]:
    """Returns the client properties that the user gave, and only those."""
    client = _read_file(properties_file) if properties_file is not None else {}
    for text in properties or ():
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            # The text is not shown: it may be a password whose key was forgotten.
            raise ConfigError(
                "--property needs KEY=VALUE, such as security.protocol=SASL_SSL; one of the values has no key or no '='."
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


def with_embedded_default(client: Mapping[str, str], data_dir: Path = DEFAULT_DATA_DIR) -> dict[str, str]:
    """Returns the properties with an address: the given one, or else the running embedded broker's."""
    if client.get("bootstrap.servers"):
        return dict(client)
    cluster = ClusterRecord.load(data_dir)
    if cluster is None or not any(node.is_running() for node in cluster.nodes):
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


def with_embedded_broker(layers: Sequence[Layer], *, needs_cluster: bool = True) -> list[Layer]:
    """Returns the layers. If none names a cluster, the embedded broker that runs in this folder becomes the lowest layer.

    Raises:
        ConfigError: No cluster is given, no embedded broker is running, and one is needed.
    """
    config = config_of(layers)
    if config.bootstrap_servers:
        return list(layers)
    data_dir = Path(os.environ.get("STREAMS_BROKER_DIR") or DEFAULT_DATA_DIR)
    try:
        servers = with_embedded_default(config.kafka, data_dir)["bootstrap.servers"]
    except ConfigError:
        if needs_cluster:
            raise
        return list(layers)
    return [*layers, Layer(f"embedded broker in {data_dir}", {"bootstrap_servers": servers})]


def printable(client: Mapping[str, str]) -> str:
    """Returns the properties as one line for people, with secrets masked."""
    return ", ".join(f"{key}={value}" for key, value in sorted(redact(client).items()))


def reachable(config: StreamsConfig) -> StreamsConfig:
    """Returns the settings unchanged, once their cluster has answered.

    Raises:
        ConfigError: The client does not know a property.
        ClusterUnreachableError: The cluster does not answer.
    """
    from streams.cluster.admin import check_reachable

    check_reachable(config.client)
    return config


def live(config: StreamsConfig) -> LiveKafka:
    """The logs of an application's cluster."""
    from state.commit.live import LiveKafka

    return LiveKafka(config.client, config.transaction_timeout_ms, bulk=config.bulk_io)


@contextmanager
def open_checkpoint(config: StreamsConfig) -> Iterator[CheckpointFiles]:
    """The checkpoint folder. If it is not on a local disk, it is read through a Spark session."""
    from streams.checkpoint.files import LocalFiles, is_local

    if is_local(config.checkpoint_dir) and "spark.hadoop.fs.defaultFS" not in config.spark:
        yield LocalFiles(config.checkpoint_dir)
        return
    from streams.driver.checkpoint_files import checkpoint_files
    from streams.driver.launch.ahead import start_session

    session = start_session(config.application_id, config.spark, config.checkpoint_dir)
    try:
        yield checkpoint_files(session, config.checkpoint_dir)
    finally:
        session.stop()


# Values as they are typed.


def pairs(texts: list[str] | None, name: str, example: str) -> dict[str, str]:
    """Parses the `NAME=VALUE` texts of an option into a dictionary."""
    found = {}
    for text in texts or ():
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise ConfigError(f"{name} needs NAME=VALUE, such as {example}, not {text!r}.")
        found[key] = value
    return found


def to_timestamp(text: str) -> int:
    """Converts a typed time (ms since 1970, or ISO 8601) to ms since 1970. A time without a zone is UTC."""
    if re.fullmatch(r"\d+", text):
        return int(text)
    try:
        return to_timestamp_ms(moment(text))
    except ValueError:
        raise ConfigError(
            f"{text!r} is not a time: write milliseconds since 1970, or ISO 8601 such as 2026-01-31T12:00:00Z"
        ) from None


def duration_ms(name: str, text: str) -> int:
    """The milliseconds of an option's duration."""
    try:
        return int(to_milliseconds(text))
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None


def other_settings(given: Sequence[str] | None) -> dict[str, Any]:
    """Parses `NAME=VALUE` texts as settings, each by the type of the setting."""
    values: dict[str, Any] = {}
    for text in given or ():
        name, separator, value = text.partition("=")
        if not separator:
            # The text is not shown: it may be a password whose name was forgotten.
            raise ConfigError("--set needs NAME=VALUE, such as tasks=4; one of the values has no '='")
        if name.startswith("spark.spark."):
            raise ConfigError(f"--set {name}: Spark has no such setting; write {name.removeprefix('spark.')}")
        if name.startswith("spark."):
            values.setdefault("spark", {})[name] = value
        elif name in StreamsConfig.model_fields:
            # None would mean that the option was not given.
            values[name] = value if value == "none" else _parsed(name, value)
        else:
            raise ConfigError(
                f"--set {name}: there is no such setting.{did_you_mean(name, StreamsConfig.model_fields)} "
                f"`streams config` lists all."
            )
    return values


def _parsed(name: str, value: str) -> Any:
    annotation = StreamsConfig.model_fields[name].rebuild_annotation()
    try:
        return TypeAdapter(annotation).validate_python(value)
    except ValidationError as error:
        reason = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        # A whole table may have secrets in it.
        shown = name if name in ("kafka", "spark") else f"{name}={mask(value)}"
        raise ConfigError(f"--set {shown}: {reason}") from None


def check_no_question(as_json: bool, decided: bool, advice: str) -> None:
    """Raises `ConfigError` if a command that prints JSON would have to ask."""
    if as_json and not decided:
        raise ConfigError(f"--json cannot ask: {advice}")
