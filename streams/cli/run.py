"""`streams run` and the `main()` of topologies started by spark-submit: one set of options for both."""

from __future__ import annotations

import importlib
import inspect
import logging
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from state.errors import StreamsError
from streams.cli.connection import Bootstrap, PropertiesFile, Property
from streams.cli.errors import readable_errors
from streams.cli.settings import (
    ApplicationId,
    BaseDir,
    ConfigFile,
    Settings,
    Target,
    client_options,
    default_application_id,
    load_settings,
    other_settings,
    reachable,
    split_target,
)
from streams.config import ErrorPolicy, Mode, StreamsConfig
from streams.errors import TopologyError
from streams.runtime.users_code import users_line
from streams.topology.graph import Topology

Build = Callable[[], Topology]


@readable_errors
def run(
    target: Target,
    application_id: ApplicationId = None,
    bootstrap_servers: Bootstrap = None,
    properties: Property = None,
    properties_file: PropertiesFile = None,
    config: ConfigFile = None,
    available_now: Annotated[
        bool | None,
        typer.Option("--available-now/--continuous", help="Process what is there and end, or go on for ever."),
    ] = None,
    tasks: Annotated[int | None, typer.Option(help="Tasks of each sub-topology. Frozen at the first start.")] = None,
    mode: Annotated[Mode | None, typer.Option(help="strict, or compat for Kafka Streams' own oddities.")] = None,
    trigger_interval_ms: Annotated[int | None, typer.Option(help="Pause between micro-batches, ms.")] = None,
    max_records_per_trigger: Annotated[int | None, typer.Option(help="Most records of a micro-batch.")] = None,
    bad_records: Annotated[
        ErrorPolicy | None,
        typer.Option(
            help="Policy for records that cannot be read, processed or written, or are too far in the future."
        ),
    ] = None,
    dead_letter_topic: Annotated[str | None, typer.Option(help="Topic for the policy dlq.")] = None,
    base_dir: BaseDir = None,
    settings: Settings = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print the settings in force, secrets masked, and end.")
    ] = False,
) -> None:
    """Run a topology on Spark until Ctrl-C, exactly once."""
    options: dict[str, Any] = {
        "application_id": application_id,
        "available_now": available_now,
        "tasks": tasks,
        "mode": mode,
        "trigger_interval_ms": trigger_interval_ms,
        "max_records_per_trigger": max_records_per_trigger,
        "dead_letter_topic": dead_letter_topic,
        "base_dir": base_dir,
        **client_options(bootstrap_servers, properties, properties_file),
        **other_settings(settings),
    }
    if bad_records is not None:
        options |= dict.fromkeys(("deserialization", "processing", "production", "future"), bad_records)
    default_id = _default_ids.get(target) or default_application_id(target)
    effective = load_settings(default_id, config, options, needs_cluster=not explain)
    if explain:
        typer.echo("\n".join(f"{name} = {value!r}" for name, value in effective.printable().items()))
        return
    topology = load_topology(target)
    run_topology(topology, reachable(effective))


def run_topology(topology: Topology, config: StreamsConfig) -> None:
    """Runs a topology in this process until it ends or is stopped."""
    from streams.spark.runner import StreamsApplication

    # confluent-kafka's and Spark's own logs stay out of the way of the progress display.
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    # It prints the stack of what ends a query, which is told in one sentence, or of what a stop interrupts.
    logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
    # What it cannot send any more, because the Java process has gone, it tells by the root logger.
    logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)
    StreamsApplication(topology, config).run()


def run_main(build: Build, application_id: str) -> None:
    """The command line of one topology: the options of `streams run`, without its target.

    Args:
        build: makes the topology; its docstring becomes the help.
        application_id: used unless an option, the environment or a file gives one.
    """
    target = f"{build.__module__}:{build.__qualname__}"
    _known[target], _default_ids[target] = build, application_id

    def main(**options: Any) -> None:
        run(target, **options)

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
_default_ids: dict[str, str] = {}
"""Their application ids."""


def load_topology(target: str) -> Topology:
    """Finds `module:attribute`.

    Raises:
        TopologyError: there is no such thing, or it is no topology.
    """
    found: Any = _known.get(target)
    if found is None:
        module_name, attribute = split_target(target)
        # Modules of the working directory, as python -m and spark-submit find them.
        if "" not in sys.path:
            sys.path.insert(0, "")
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            raise TopologyError(
                f"{target}: there is no module {error.name!r}. Run from its folder, or install it."
            ) from error
        except Exception as error:
            raise _failed(target, error) from error
        if not hasattr(module, attribute):
            raise TopologyError(f"{target}: module {module_name!r} has no {attribute!r}")
        found = getattr(module, attribute)
    try:
        topology = found() if callable(found) else found
    except Exception as error:
        raise _failed(target, error) from error
    if not isinstance(topology, Topology):
        raise TopologyError(f"{target} is a {type(topology).__name__}, not a Topology nor a function that makes one")
    return topology


def _failed(target: str, error: Exception) -> StreamsError:
    """What a module or a function of the user's raised: in one sentence, with the line that it comes from."""
    if isinstance(error, StreamsError):
        return error
    what = error.msg if isinstance(error, SyntaxError) else error
    # A function that cannot be called at all has no line: nothing of it has run.
    hints = filter(None, (users_line(error), "STREAMS_TRACEBACK=1 shows the whole trace"))
    return TopologyError(f"{target}: {type(error).__name__}: {what} ({'; '.join(hints)})")
