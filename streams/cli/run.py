"""`streams run` and the `main()` of topologies started by spark-submit: one set of options for both."""

from __future__ import annotations

import faulthandler
import inspect
import logging
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streams.cli.command import OptionGroup, PlainCommand, command, expose, option
from streams.cli.config import show_settings
from streams.cli.options import ApplicationOptions, Target, with_embedded_broker
from streams.cli.target import Build, TopologyTarget, register
from streams.config import ErrorPolicy, Mode, StreamsConfig, config_of, warn_of_open_files
from streams.logs.output import LogFormat, LogLevel, LogSettings, set_up_command

if TYPE_CHECKING:
    from streams.topology.topology import Topology

_POLICIES = ("deserialization", "processing", "production", "future")

MetricsAddress = Annotated[
    str | None, option("Serve /metrics (for Prometheus), /health and /ready at this address.", metavar="HOST:PORT")
]
UiAddress = Annotated[
    str | None, option("Serve the dashboard of the running application at this address.", metavar="HOST:PORT")
]
ServeAddress = Annotated[
    str | None, option("Serve the stores at this address while the application runs.", metavar="HOST:PORT")
]
Format = Annotated[
    LogFormat | None, option("Format of standard error: text for people, or json with one object per line.")
]
Level = Annotated[LogLevel | None, option("The lowest level of log lines to print.")]


@dataclass(frozen=True)
class WorkOptions(OptionGroup):
    """How much is processed at a time, and for how long."""

    available_now: Annotated[
        bool | None, option("Process the existing input and end, or run until stopped.", "--available-now/--continuous")
    ] = None
    tasks: Annotated[
        int | None, option("Tasks of each sub-topology. Decided at the first start; `streams rescale` changes it.")
    ] = None
    mode: Annotated[Mode | None, option("strict, or compat to reproduce the quirks of Kafka Streams.")] = None
    trigger_interval_ms: Annotated[
        str | None,
        option("Time between the starts of micro-batches: 500ms, 5s, 1m, or a number of ms.", metavar="DURATION"),
    ] = None
    max_records_per_trigger: Annotated[int | None, option("Maximum number of records in a micro-batch.")] = None


@dataclass(frozen=True)
class SeenOptions(OptionGroup):
    """Options that make the application visible: metrics, dashboard, stores and log lines."""

    metrics: MetricsAddress = None
    otel: Annotated[
        bool | None, option("Send metrics through OpenTelemetry (see the variables OTEL_...).", "--otel/--no-otel")
    ] = None
    ui: UiAddress = None
    serve: ServeAddress = None
    log_format: Format = None
    log_level: Level = None


@dataclass(frozen=True)
class PolicyOptions(OptionGroup, panel="Bad records"):
    """Error policies: one for all stages, or one for each."""

    bad_records: Annotated[ErrorPolicy | None, option("All four policies at once.")] = None
    deserialization: Annotated[
        ErrorPolicy | None, option("Records that cannot be read.", "--deserialization-policy")
    ] = None
    processing: Annotated[
        ErrorPolicy | None, option("Exceptions of the program's functions.", "--processing-policy")
    ] = None
    production: Annotated[ErrorPolicy | None, option("Results that cannot be written.", "--production-policy")] = None
    future: Annotated[ErrorPolicy | None, option("Timestamps too far in the future.", "--future-policy")] = None
    dead_letter_topic: Annotated[str | None, option("Topic of dead letters, for the policy dlq.", metavar="TOPIC")] = (
        None
    )

    def settings(self) -> dict[str, Any]:
        """The policies as settings; an option for one stage takes precedence over `--bad-records`."""
        policies = {name: getattr(self, name) or self.bad_records for name in _POLICIES}
        return {**policies, "dead_letter_topic": self.dead_letter_topic}


@command
def run(
    target: Target,
    *,
    application: ApplicationOptions,
    work: WorkOptions,
    policies: PolicyOptions,
    seen: SeenOptions,
    verbose: Annotated[bool, option("Also show Spark's own start-up lines and warnings.", "-v")] = False,
    explain: Annotated[bool, option("Print the effective settings and where they come from, and exit.")] = False,
    as_json: Annotated[bool, option("With --explain: print JSON, for programs.", "--json")] = False,
) -> None:
    """Run a topology on Spark until Ctrl-C, exactly once."""
    options = {**asdict(work), **policies.settings(), **asdict(seen)}
    if seen.log_format is LogFormat.JSON:
        # Errors in the settings are lines of JSON, too.
        set_up_command(LogSettings(seen.log_format, seen.log_level))
    program = TopologyTarget.parse(target)
    layers = with_embedded_broker(application.layers(program.application_id(), options), needs_cluster=not explain)
    config = config_of(layers)
    if explain:
        show_settings(config, layers, as_json=as_json)
        return
    set_up_logs(config)
    warn_of_open_files(layers)
    if verbose:
        config = config.model_copy(update={"spark": {"spark.log.level": "WARN", **config.spark}})
    check_addresses(config)
    _start(program, config, target)


def _start(program: TopologyTarget, config: StreamsConfig, target: str) -> None:
    """Starts Java, imports the program at the same time, and runs the program."""
    if not faulthandler.is_enabled() and sys.__stderr__ is not None:
        # A crash in native code, which raises nothing, leaves the stack of each thread.
        faulthandler.enable(sys.__stderr__)
    program.share_with_workers()
    from streams.driver.launch.ahead import session_ahead
    from streams.driver.stopping import stopped_by_signals

    delta = program.mentions_delta()
    if delta:
        from streams.driver.delta import fetch_delta

        fetch_delta(typer.echo)
    # Signals interrupt the command until the application handles them as requests to stop. It ends in the same way.
    try:
        # Java starts while the program is imported and its topics are looked up.
        with (
            stopped_by_signals(_interrupt),
            session_ahead(config.application_id, config.spark, config.checkpoint_dir, delta=delta),
        ):
            run_topology(program.load(), config, target=target)
    except KeyboardInterrupt:
        typer.echo("stopped before it was running", err=True)


def check_addresses(config: StreamsConfig) -> None:
    """Checks early, before anything else is started, whether metrics, the page and stores can be served.

    Raises:
        ConfigError: An address is taken, or a package that is needed to serve it is not installed.
    """
    if config.metrics_address is not None or config.otel:
        from streams.metrics.export import check_serving

        check_serving(config)
    if config.ui_address is not None:
        from streams.ui.running import check_page

        check_page(config)
    if config.serve_address is not None:
        from streams.serve.server import check_serve

        check_serve(config)


class _Interrupted(KeyboardInterrupt):
    """Raised by a signal before the application handles signals.

    A class of its own: if KeyboardInterrupt itself is raised within code that was compiled from text, such as that of dataclasses
    while they are imported, Python ends as killed by SIGINT, even if it was caught.
    """


def _interrupt() -> None:
    raise _Interrupted


def run_topology(
    topology: Topology, config: StreamsConfig, until_ms: int | None = None, target: str = "TARGET"
) -> None:
    """Runs a topology in this process until it ends or is stopped."""
    from streams.driver.runner import StreamsApplication

    def say(text: str) -> None:
        application.progress.say(text)

    with ExitStack() as served:
        on_running: Callable[[], object] = bool
        if config.serve_address is not None:
            from streams.serve.server import EmbeddedServer

            on_running = served.enter_context(closing(EmbeddedServer(topology, config, say))).serve
        application = StreamsApplication(topology, config, until_ms=until_ms, target=target, on_running=on_running)
        application.run()


def set_up_logs(config: StreamsConfig) -> None:
    """Sets up what this process writes to standard error, by the settings, until it ends."""
    set_up_command(config.logs, config.application_id)
    # This logger prints stack traces of errors that end a query (reported in one sentence) or that a stop causes.
    logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
    # If calls fail because the Java process has ended, py4j reports this through the root logger.
    logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)


def run_main(build: Build, application_id: str) -> None:
    """The command line of one topology: the options of `streams run`, without its target."""
    target = register(build, application_id)

    def main(**options: Any) -> None:
        run(target=target, **options)

    parameters = [one for name, one in inspect.signature(run).parameters.items() if name != "target"]
    expose(main, parameters)
    main.__doc__ = build.__doc__
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(cls=PlainCommand)(main)
    app()
