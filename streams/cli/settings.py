"""The options by which commands get an application's settings, and what becomes of them: a `StreamsConfig`.

Later ones win: defaults, the TOML file, the environment, options. Where nothing names a cluster, the embedded broker that
runs in this folder is taken.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError

from streams.cli.connection import DEFAULT_DATA_DIR, client_properties, with_embedded_default
from streams.config import StreamsConfig, load_config
from streams.errors import ConfigError, TopologyError

Target = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:TOPOLOGY",
        help="The topology as module:attribute; a Topology, or a function that makes one. Default attribute: build.",
        show_default=False,
    ),
]
ApplicationId = Annotated[
    str | None,
    typer.Option(
        "--application-id",
        "-a",
        metavar="ID",
        help="Prefix of internal topics; consumer group that shows the lag. Default: made of the topology's name.",
    ),
]
ConfigFile = Annotated[Path | None, typer.Option("--config", "-c", metavar="FILE", help="TOML file with settings.")]
BaseDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder of local state and checkpoint. Default: var, in the working directory."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any other setting; spark.NAME=VALUE for one of Spark's."),
]


def load_settings(
    default_id: str, file: Path | None, options: Mapping[str, Any], *, needs_cluster: bool = True
) -> StreamsConfig:
    """Settings for a command.

    Args:
        default_id: application id that is used unless one is given.
        file: TOML file.
        options: what the command line gives; None values are left out.
        needs_cluster: whether settings without any cluster are an error.

    Raises:
        ConfigError: a bad setting, or no cluster is given and no embedded broker runs.
    """
    config = load_config(file, options, {"application_id": default_id})
    if config.bootstrap_servers:
        return config
    data_dir = Path(os.environ.get("STREAMS_BROKER_DIR") or DEFAULT_DATA_DIR)
    try:
        servers = with_embedded_default({}, data_dir)["bootstrap.servers"]
    except ConfigError:
        if needs_cluster:
            raise
        return config
    return config.model_copy(update={"bootstrap_servers": servers})


def reachable(config: StreamsConfig) -> StreamsConfig:
    """The settings, once their cluster has answered.

    Raises:
        ConfigError: the client does not know a property.
        ClusterUnreachableError: the cluster does not answer.
    """
    from streams.broker.topics import check_reachable

    check_reachable(config.client)
    return config


def split_target(target: str) -> tuple[str, str]:
    """Module and attribute of `module:attribute`; without an attribute, `build`.

    Raises:
        TopologyError: it cannot be one.
    """
    module, _, attribute = target.partition(":")
    if not all(part.isidentifier() for part in [*module.split("."), attribute or "build"]):
        raise TopologyError(
            f"{target!r} names no topology: write it as Python imports it, such as topologies.word_count:build"
        )
    return module, attribute or "build"


def default_application_id(target: str) -> str:
    """`module:attribute` made fit for the names of topics."""
    return "-".join(split_target(target)).replace("_", "-")


def client_options(servers: str | None, properties: Sequence[str] | None, file: Path | None) -> dict[str, Any]:
    """Connection options as settings."""
    client = client_properties(servers, properties, file)
    return {"bootstrap_servers": client.pop("bootstrap.servers", None), "kafka": client}


def other_settings(given: Sequence[str] | None) -> dict[str, Any]:
    """`NAME=VALUE` texts as settings, each parsed by the setting's type.

    Raises:
        ConfigError: a text without `=`, a setting that does not exist, or a value that does not fit.
    """
    values: dict[str, Any] = {}
    for text in given or ():
        name, separator, value = text.partition("=")
        if not separator:
            raise ConfigError(f"--set {text}: NAME=VALUE is needed")
        if name.startswith("spark."):
            values.setdefault("spark", {})[name] = value
        elif name in StreamsConfig.model_fields:
            # None would mean that the option was not given.
            values[name] = value if value == "none" else _parsed(name, value)
        else:
            raise ConfigError(
                f"--set {name}: there is no such setting; known: {', '.join(sorted(StreamsConfig.model_fields))}"
            )
    return values


def _parsed(name: str, value: str) -> Any:
    annotation = StreamsConfig.model_fields[name].rebuild_annotation()
    try:
        return TypeAdapter(annotation).validate_strings(value)
    except ValidationError as error:
        raise ConfigError(f"--set {name}={value}: {error.errors(include_url=False)[0]['msg']}") from None
