"""`streams run` and the `main()` of topologies started by spark-submit: one set of options for both."""

from __future__ import annotations

import importlib
import inspect
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter

from streams.cli.connection import Bootstrap, PropertiesFile, Property, client_properties
from streams.cli.errors import readable_errors
from streams.config import ErrorPolicy, Mode, StreamsConfig, load_config
from streams.errors import ConfigError, TopologyError
from streams.topology.graph import Topology

Build = Callable[[], Topology]


@readable_errors
def run(
    target: Annotated[
        str, typer.Argument(help="The topology as module:attribute; a Topology, or a function that makes one.")
    ],
    application_id: Annotated[
        str | None,
        typer.Option("--application-id", "-a", help="Prefix of internal topics; consumer group that shows the lag."),
    ] = None,
    bootstrap_servers: Bootstrap = None,
    properties: Property = None,
    properties_file: PropertiesFile = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="TOML file with settings.")] = None,
    available_now: Annotated[
        bool | None,
        typer.Option("--available-now/--continuous", help="Process what is there and end, or go on for ever."),
    ] = None,
    tasks: Annotated[int | None, typer.Option(help="Tasks of each sub-topology. Frozen at the first start.")] = None,
    mode: Annotated[Mode | None, typer.Option(help="strict, or compat for Kafka Streams' own oddities.")] = None,
    trigger_interval_ms: Annotated[int | None, typer.Option(help="Pause between micro-batches, ms.")] = None,
    max_records_per_trigger: Annotated[int | None, typer.Option(help="Most records of a micro-batch.")] = None,
    bad_records: Annotated[
        ErrorPolicy | None, typer.Option(help="Policy for records that cannot be read, processed or written.")
    ] = None,
    dead_letter_topic: Annotated[str | None, typer.Option(help="Topic for the policy dlq.")] = None,
    base_dir: Annotated[
        Path | None, typer.Option(help="Folder of local state and checkpoint, below the application id.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any other setting; spark.NAME=VALUE for one of Spark's."),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print the settings in force, secrets masked, and end.")
    ] = False,
) -> None:
    """Run a topology on Spark until Ctrl-C, exactly once."""
    options: dict[str, Any] = {
        "application_id": application_id or target.replace(":", "-").replace("_", "-"),
        "available_now": available_now,
        "tasks": tasks,
        "mode": mode,
        "trigger_interval_ms": trigger_interval_ms,
        "max_records_per_trigger": max_records_per_trigger,
        "dead_letter_topic": dead_letter_topic,
        "base_dir": base_dir,
        **client_options(bootstrap_servers, properties, properties_file),
        **_settings(settings or []),
    }
    if bad_records is not None:
        options |= dict.fromkeys(("deserialization", "processing", "production"), bad_records)
    if application_id is None and config is not None:
        options.pop("application_id")
    effective = load_config(config, options)
    if explain:
        typer.echo("\n".join(f"{name} = {value!r}" for name, value in effective.printable().items()))
        return
    run_topology(load_topology(target), effective)


def run_topology(topology: Topology, config: StreamsConfig) -> None:
    """Runs a topology in this process until it ends or is stopped."""
    from streams.spark.runner import StreamsApplication

    # confluent-kafka's and Spark's own logs stay out of the way of the progress display.
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    StreamsApplication(topology, config).run()


def run_main(build: Build, application_id: str) -> None:
    """The command line of one topology: the options of `streams run`, without its target.

    Args:
        build: makes the topology; its docstring becomes the help.
        application_id: used unless `--application-id` is given.
    """
    target = f"{build.__module__}:{build.__qualname__}"
    _known[target] = build

    def main(**options: Any) -> None:
        run(target, **{**options, "application_id": options["application_id"] or application_id})

    signature = inspect.signature(run, eval_str=True)
    parameters = [parameter for name, parameter in signature.parameters.items() if name != "target"]
    main.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    main.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    main.__doc__ = build.__doc__
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    app()


_known: dict[str, Build] = {}
"""Functions given to `run_main`: under spark-submit their module is `__main__` and must not be imported again."""


def load_topology(target: str) -> Topology:
    """Finds `module:attribute`.

    Raises:
        TopologyError: there is no such thing, or it is no topology.
    """
    found: Any = _known.get(target)
    if found is None:
        module_name, _, attribute = target.partition(":")
        # Modules of the working directory, as python -m and spark-submit find them.
        if "" not in sys.path:
            sys.path.insert(0, "")
        try:
            found = getattr(importlib.import_module(module_name), attribute or "build")
        except ModuleNotFoundError as error:
            raise TopologyError(
                f"{target}: there is no module {error.name!r}. Run from its folder, or install it."
            ) from error
        except AttributeError as error:
            raise TopologyError(f"{target}: module {module_name!r} has no {attribute or 'build'!r}") from error
    topology = found() if callable(found) else found
    if not isinstance(topology, Topology):
        raise TopologyError(f"{target} is a {type(topology).__name__}, not a Topology nor a function that makes one")
    return topology


def client_options(servers: str | None, properties: list[str] | None, file: Path | None) -> dict[str, Any]:
    """Connection options as settings."""
    client = client_properties(servers, properties, file)
    return {"bootstrap_servers": client.pop("bootstrap.servers", None), "kafka": client}


def _settings(given: list[str]) -> dict[str, Any]:
    """`NAME=VALUE` texts as settings; values are parsed by the setting's type when the settings are made."""
    values: dict[str, Any] = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator:
            raise ConfigError(f"--set {text}: NAME=VALUE is needed")
        if name.startswith("spark."):
            values.setdefault("spark", {})[name] = value
        elif name in StreamsConfig.model_fields:
            field = StreamsConfig.model_fields[name]
            values[name] = None if value == "none" else TypeAdapter(field.rebuild_annotation()).validate_strings(value)
        else:
            raise ConfigError(
                f"--set {name}: there is no such setting; known: {', '.join(sorted(StreamsConfig.model_fields))}"
            )
    return values
