"""The options for an application's settings, which commands load into a `StreamsConfig`.

Later sources take precedence: defaults, the TOML file, the environment, options. Without any named cluster, commands use the
embedded broker that runs in this folder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError

from state.secrets import mask
from streams.cli.command import OptionGroup
from streams.cli.connection import (
    DEFAULT_DATA_DIR,
    Bootstrap,
    PropertiesFile,
    Property,
    client_properties,
    with_embedded_default,
)
from streams.config import Layer, StreamsConfig, config_layers, config_of
from streams.errors import ConfigError
from streams.suggest import did_you_mean

Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="The topology: a file (app.py) or a module (package.module), and :NAME of a Topology, a StreamsBuilder or a "
        "function that returns one. Default name: build, or the only candidate.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
ApplicationId = Annotated[
    str | None,
    typer.Option(
        "--application-id",
        "-a",
        metavar="ID",
        help="Prefix of internal topics; consumer group that shows the lag. Default: from the topology's name.",
    ),
]
ConfigFile = Annotated[Path | None, typer.Option("--config", "-c", metavar="FILE", help="TOML file with settings.")]
BaseDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder of local state and checkpoint. Default: var, in the working directory."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any other setting (see streams config), or spark.NAME=VALUE for one of Spark's; may be repeated.",
    ),
]


@dataclass(frozen=True)
class ApplicationOptions(OptionGroup):
    """Options of every command about an application: its id, its cluster and its settings."""

    application_id: ApplicationId = None
    bootstrap_servers: Bootstrap = None
    properties: Property = None
    properties_file: PropertiesFile = None
    config: ConfigFile = None
    base_dir: BaseDir = None
    settings: Settings = None

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
        return config_of(with_embedded_broker(self.layers(default_id, options), needs_cluster=needs_cluster))


def with_embedded_broker(layers: Sequence[Layer], *, needs_cluster: bool = True) -> list[Layer]:
    """The layers; if none names a cluster, with the embedded broker that runs in this folder as the lowest layer.

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


def reachable(config: StreamsConfig) -> StreamsConfig:
    """The settings unchanged, after their cluster has answered.

    Raises:
        ConfigError: The client does not know a property.
        ClusterUnreachableError: The cluster does not answer.
    """
    from streams.cluster.topics import check_reachable

    check_reachable(config.client)
    return config


def other_settings(given: Sequence[str] | None) -> dict[str, Any]:
    """`NAME=VALUE` texts as settings, each parsed by the setting's type.

    Raises:
        ConfigError: A text has no `=`, a setting does not exist, or a value is invalid.
    """
    values: dict[str, Any] = {}
    for text in given or ():
        name, separator, value = text.partition("=")
        if not separator:
            # The text is not shown: it may be a password whose name was forgotten.
            raise ConfigError("--set needs NAME=VALUE, such as tasks=4; one given has no '='")
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
        says = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        # A whole table may have secrets in it.
        shown = name if name in ("kafka", "spark") else f"{name}={mask(value)}"
        raise ConfigError(f"--set {shown}: {says}") from None
