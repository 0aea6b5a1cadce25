"""`streams replay`: processes past input again under another application id, into topics of its own."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from state.kafka.admin import KafkaAdmin
from streams.application.prepare import make_outputs, make_row_topics
from streams.cli.command import OptionGroup, command, option
from streams.cli.options import ApplicationOptions, Target, duration_ms, reachable, to_timestamp
from streams.cli.run import Format, Level, MetricsAddress, UiAddress, check_addresses, run_topology, set_up_logs
from streams.cli.target import TopologyTarget
from streams.config import StreamsConfig
from streams.errors import ConfigError
from streams.topology.rewrite import calls_outside, rows_topic, with_own_outputs
from streams.topology.topology import Topology

Prefix = Annotated[
    str | None,
    option(
        "Its output topics have the original names with this prefix. Default: the new id and a dot.", "--output-prefix"
    ),
]


@dataclass(frozen=True)
class SpanOptions(OptionGroup):
    """The part of the input that is processed again."""

    begin: Annotated[
        str,
        option(
            "Where to begin: earliest, a time (ISO 8601, or ms since 1970), or a duration before now (7d).",
            "--from",
            metavar="WHERE",
        ),
    ] = "earliest"
    until: Annotated[str, option("Where to end: now (the current ends of the topics), or a time.", metavar="WHERE")] = (
        "now"
    )
    follow: Annotated[bool, option("Do not end: continue with new records.")] = False

    def until_ms(self) -> int | None:
        """The time at which the replay ends; None: it ends at the current ends of the topics, or never.

        Raises:
            ConfigError: The options ask both to end and to continue with new records.
        """
        if self.follow and self.until != "now":
            raise ConfigError("--follow continues with new records, and --until ends before them: give one of them")
        return None if self.until == "now" else to_timestamp(self.until)


@command
def replay(
    target: Target,
    *,
    new_id: Annotated[str, option("The application id of the replay.", "--as", metavar="ID", show_default=False)],
    span: SpanOptions,
    prefix: Prefix = None,
    metrics: MetricsAddress = None,
    ui: UiAddress = None,
    log_format: Format = None,
    log_level: Level = None,
    application: ApplicationOptions,
) -> None:
    """Process past input again, alongside the running application, which is not touched.

    Delta tables and foreach_batch functions get nothing: their rows go to topics, too. Functions of enrich, foreach and peek are
    called again. The settings metrics and ui apply only to the application: for metrics and a dashboard of the
    replay, give --metrics and --ui.

    A replay is a separate application, with its own id, state, checkpoint and output topics, which are created like the originals.
    It ends at --until. After an interruption, run it again to continue. Topics of tables are read from their start.
    `streams reset ID` removes what it leaves behind, except for its output topics.
    """
    program = TopologyTarget.parse(target)
    until_ms = span.until_ms()
    options: dict[str, Any] = {
        "available_now": not span.follow,
        "starting_offsets": _starting(span.begin),
        "metrics": metrics or "none",
        "ui": ui or "none",
        "log_format": log_format,
        "log_level": log_level,
    }
    original = application.load(program.application_id())
    config = replace(application, application_id=new_id).load(None, options)
    if config.application_id == original.application_id:
        raise ConfigError(f"--as {new_id}: that is the application itself; a replay needs a different id")
    set_up_logs(config)
    check_addresses(config)
    program.share_with_workers()
    topology, config = prepared(program.load(), reachable(config), f"{new_id}." if prefix is None else prefix)
    run_topology(topology, config, until_ms, target)


def prepared(topology: Topology, config: StreamsConfig, prefix: str) -> tuple[Topology, StreamsConfig]:
    """The program with its own output topics, which are created here, and the settings for it."""
    originals = {sink.topic for sink in topology.sinks() if isinstance(sink.topic, str)}
    if config.dead_letter_topic:
        originals.add(config.dead_letter_topic)
    names = {topic: f"{prefix}{topic}" for topic in originals}
    if taken := originals & set(names.values()):
        raise ConfigError(f"--output-prefix {prefix!r}: the application itself writes to {', '.join(sorted(taken))}")
    rows = {rows_topic(sink): f"{prefix}{rows_topic(sink)}" for sink in topology.lake_sinks.values()}
    renamed = with_own_outputs(topology, lambda topic: names.get(topic) or rows[topic])
    for sink in topology.lake_sinks.values():
        typer.echo(f"{sink.target_text} gets nothing: its rows go to the topic {rows[rows_topic(sink)]}")
    for line in calls_outside(topology):
        typer.echo(line)
    inputs = [str(topic) for source in topology.sources() for topic in source.topics]
    with KafkaAdmin(config.client) as admin:
        made = make_outputs(admin, names, config.replication_factor)
        for topic in [*made, *make_row_topics(admin, list(rows.values()), inputs, config.replication_factor)]:
            typer.echo(f"created topic {topic}")
    if config.dead_letter_topic:
        config = config.model_copy(update={"dead_letter_topic": names[config.dead_letter_topic]})
    return renamed, config


def _starting(text: str) -> str:
    """The setting `starting_offsets` for a beginning that was typed."""
    if text == "earliest":
        return text
    if text[-1:].isalpha() and text[:1].isdigit() and "T" not in text:
        return f"timestamp:{int(time.time() * 1000) - duration_ms('--from', text)}"
    return f"timestamp:{to_timestamp(text)}"
