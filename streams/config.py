"""Settings of an application: from a TOML file, the environment (`STREAMS_…`) and options, later ones winning.

`StreamsConfig` holds plain values only and can be printed: secrets of the Kafka client are masked.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from state.kafka.config import redact
from streams.errors import ConfigError
from streams.topology.application_id import wrong_application_id

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


MESSAGE_MAX_BYTES = 1_000_000
"""librdkafka's own `message.max.bytes`."""


class Mode(str, Enum):
    """Semantics: `strict` mends what Kafka Streams gets wrong, `compat` reproduces it."""

    STRICT = "strict"
    COMPAT = "compat"


class ErrorPolicy(str, Enum):
    """What to do with a bad record: fail (default), skip and count, or send to the dead-letter topic."""

    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dlq"


class StreamsConfig(BaseSettings):
    """All settings of an application.

    Attributes:
        application_id: prefix of internal topics and transactional ids, and the consumer group that shows the lag.
        bootstrap_servers: `host:port,…` of the Kafka cluster; needed for all that talks to Kafka.
        kafka: further librdkafka client properties (`security.protocol`, `sasl.…`, `ssl.…`).
        base_dir: where state and checkpoint go unless set.
        state_dir: root of the local stores, on each executor; `<base_dir>/state`.
        checkpoint_dir: Spark's checkpoints of this application, shared by all hosts of a cluster;
            `<base_dir>/checkpoint/<application_id>`.
        tasks: tasks of each sub-topology; default: the largest partition count among its sources. Frozen at the first start.
        mode: strict or compat.
        ensure_explicit_naming: refuse to start if a store or a repartition topic has a generated name.
        starting_offsets: earliest, latest, `timestamp:<ms>`, or `duration:<ms>` before the first start, where a source has no
            own reset policy.
        on_lost_offsets: fail (default), earliest or latest, when offsets were lost to retention.
        max_records_per_trigger: admission limit of a micro-batch, over all partitions.
        max_bytes_per_trigger: the same in bytes of keys and values (estimated from a sample).
        trigger_interval_ms: pause between micro-batches; 0 = as soon as the last is done.
        available_now: process what is there, then stop.
        broker_wait_ms: how long brokers may be away. The application waits, says so, and goes on; only then it ends with an
            error. 0 = it ends at once.
        wall_clock_interval_ms: every task gets a step at least so often, with or without records, and the first as the
            application starts, so that wall-clock punctuators run and idle windows close; None = only steps with records. Each
            step is a commit. Not with `available_now`.
        idle_timeout_ms: once a task has had no records for so long, its event time goes on with the wall clock, so that
            windows close, rows expire and unmatched rows come without further records; records that come later, and are
            older than that, are late. None (default) = only records move event time, and results do not depend on when
            they come. Needs `wall_clock_interval_ms`; not with `available_now`, nor behind a repartition topic.
        emit_interval_ms: in compat mode, how much of the wall clock lies at least between two looks for windows to emit on
            close, and for unmatched rows of stream joins (Kafka Streams' `__emit.interval.ms.kstreams.windowed.aggregation__`
            and `__emit.interval.ms.kstreams.outer.join.spurious.results.fix__`, 1000 there); 0 (default) = after each record.
        deserialization: policy for records that a serde cannot read, or without a valid timestamp.
        processing: policy for exceptions of user functions.
        production: policy for results that cannot be serialised, or that Kafka would refuse: too large, without a key for a
            compacted topic, of a time that the topic does not take, for a topic that does not exist or must not be chosen.
        future: policy for records whose timestamp lies more than `max_future_ms` ahead of the batch time.
        dead_letter_topic: where `dlq` sends them.
        global_table_errors: policy for records of global tables: `fail` or `skip`; None (default) = as the other policies say, of
            which `dlq` is refused then: each process reads a global table for itself, and would send a dead letter of its own.
        max_record_bytes: largest result that may be produced, bytes: key, value, headers and Kafka's overhead. More than
            1 000 000 also raises the client's `message.max.bytes`; the topics' `max.message.bytes` is yours to raise.
        max_future_ms: how far ahead of the batch time a timestamp may lie, a day by default; None ("none" in a file or on the
            command line) = no bound, for simulations and other event times that are in the future on purpose.
        trim_delay_ms: how long changelog records of windowed stores stay that are expired, a day by default: until then an
            operator can still go back behind a record whose wrong time has expired them. 0 = they go with the next step.
        replication_factor: of internal topics; -1 = the broker's default.
        transaction_timeout_ms: of the producers.
        spill_bytes: bound of the write buffer of a step, bytes; beyond it, it spills to disk. At most 1 GiB.
        bulk_io: use librdkafka's C API; False = the ordinary Python client.
        spark: further Spark settings.
    """

    model_config = SettingsConfigDict(
        env_prefix="STREAMS_", env_nested_delimiter="__", extra="forbid", validate_default=True, use_enum_values=False
    )

    application_id: str = Field(min_length=1, max_length=150)
    bootstrap_servers: str = ""
    kafka: dict[str, str] = Field(default_factory=dict)
    base_dir: Path = Path("var")
    state_dir: Path = Path()
    checkpoint_dir: str = ""
    tasks: int | None = Field(default=None, ge=1, le=10_000)
    mode: Mode = Mode.STRICT
    ensure_explicit_naming: bool = False
    starting_offsets: str = Field(default="earliest", pattern=r"^(earliest|latest|(timestamp|duration):\d+)$")
    on_lost_offsets: str = Field(default="fail", pattern="^(fail|earliest|latest)$")
    max_records_per_trigger: int = Field(default=1_000_000, ge=1)
    max_bytes_per_trigger: int = Field(default=512 * 1024 * 1024, ge=1)
    trigger_interval_ms: int = Field(default=0, ge=0)
    available_now: bool = False
    broker_wait_ms: int = Field(default=600_000, ge=0)
    wall_clock_interval_ms: int | None = Field(default=None, ge=100)
    idle_timeout_ms: int | None = Field(default=None, ge=1)
    emit_interval_ms: int = Field(default=0, ge=0)
    deserialization: ErrorPolicy = ErrorPolicy.FAIL
    processing: ErrorPolicy = ErrorPolicy.FAIL
    production: ErrorPolicy = ErrorPolicy.FAIL
    future: ErrorPolicy = ErrorPolicy.FAIL
    dead_letter_topic: str | None = None
    global_table_errors: ErrorPolicy | None = None
    max_record_bytes: int = Field(default=MESSAGE_MAX_BYTES, ge=1_000)
    max_future_ms: int | None = Field(default=86_400_000, ge=0)
    trim_delay_ms: int = Field(default=86_400_000, ge=0)
    replication_factor: int = Field(default=-1, ge=-1)
    transaction_timeout_ms: int = Field(default=60_000, ge=1_000, le=900_000)
    spill_bytes: int = Field(default=64 * 1024 * 1024, ge=1024, le=1024 * 1024 * 1024)
    bulk_io: bool = True
    spark: dict[str, str] = Field(default_factory=dict)

    @field_validator("application_id")
    @classmethod
    def _fit_for_topics(cls, value: str) -> str:
        if (wrong := wrong_application_id(value)) is not None:
            raise ValueError(f"{value!r} is no application id: {wrong}")
        return value

    @field_validator(
        "tasks", "wall_clock_interval_ms", "idle_timeout_ms", "dead_letter_topic", "max_future_ms", mode="before"
    )
    @classmethod
    def _none(cls, value: Any) -> Any:
        """TOML, the environment and the command line have no null: there it is the word."""
        return None if value == "none" else value

    @model_validator(mode="after")
    def _complete(self) -> StreamsConfig:
        if self.state_dir == Path():
            self.state_dir = self.base_dir / "state"
        self.state_dir = self.state_dir.absolute()
        self.bootstrap_servers = self.bootstrap_servers or self.kafka.get("bootstrap.servers", "")
        if not self.checkpoint_dir:
            self.checkpoint_dir = str(self.base_dir.absolute() / "checkpoint" / self.application_id)
        policies = (self.deserialization, self.processing, self.production, self.future)
        if ErrorPolicy.DEAD_LETTER in policies and not self.dead_letter_topic:
            raise ValueError("an error policy is 'dlq', but dead_letter_topic is not set")
        if self.global_table_errors is ErrorPolicy.DEAD_LETTER:
            raise ValueError("global_table_errors is 'fail' or 'skip': global tables have no dead letters")
        if self.idle_timeout_ms is not None and self.wall_clock_interval_ms is None:
            raise ValueError(
                "idle_timeout_ms is set, but wall_clock_interval_ms is not: an idle task moves its time on in steps without "
                "records, so say how often it is to have one (1000, for instance)"
            )
        if self.emit_interval_ms and self.mode is Mode.STRICT:
            raise ValueError(
                "emit_interval_ms is set, but the mode is strict, which emits what is closed at once: set mode to compat"
            )
        return self

    @property
    def client(self) -> dict[str, str]:
        """Client properties for librdkafka, secrets included: never print them.

        Raises:
            ConfigError: no cluster is given.
        """
        if not self.bootstrap_servers:
            raise ConfigError("no Kafka cluster is given: set bootstrap_servers, or STREAMS_BOOTSTRAP_SERVERS")
        sizes = {"message.max.bytes": str(self.max_record_bytes)} if self.max_record_bytes > MESSAGE_MAX_BYTES else {}
        return {**sizes, **self.kafka, "bootstrap.servers": self.bootstrap_servers}

    @property
    def max_message_bytes(self) -> int:
        """The largest record that the Kafka client sends."""
        return int(self.kafka.get("message.max.bytes", max(self.max_record_bytes, MESSAGE_MAX_BYTES)))

    def printable(self) -> dict[str, Any]:
        """All settings with secrets masked."""
        values = self.model_dump(mode="json")
        values["kafka"] = redact(self.kafka)
        return values

    def __repr__(self) -> str:
        return f"StreamsConfig({self.printable()})"

    __str__ = __repr__


def load_config(
    file: Path | None = None, options: Mapping[str, Any] | None = None, defaults: Mapping[str, Any] | None = None
) -> StreamsConfig:
    """Reads the settings.

    Args:
        file: TOML file with the attributes of `StreamsConfig` at its top level; tables `kafka` and `spark`.
        options: what the command line gives; None values are left out.
        defaults: for what nobody gives.

    Raises:
        ConfigError: an unknown setting, a bad value or a missing one, each named.
    """
    values: dict[str, Any] = {}
    if file is not None:
        try:
            values = tomllib.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ConfigError(f"settings file {file} does not exist") from None
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"settings file {file} is not valid TOML: {error}") from error
    given = {name: value for name, value in (options or {}).items() if value is not None}
    environment = _from_environment()
    merged = {**(defaults or {}), **values, **environment, **given}
    for table in ("kafka", "spark"):
        parts = [source.get(table) or {} for source in (values, environment, given)]
        merged[table] = {key: str(value) for part in parts for key, value in part.items()}
    try:
        return StreamsConfig(**merged)
    except ValidationError as error:
        lines = [
            f"  {'.'.join(map(str, e['loc'])) or 'settings'}: "
            + ("there is no such setting" if e["type"] == "extra_forbidden" else e["msg"].removeprefix("Value error, "))
            for e in error.errors(include_input=False)
        ]
        raise ConfigError("bad settings:\n" + "\n".join(lines)) from None


def _from_environment() -> dict[str, Any]:
    """Settings named by STREAMS_… variables, as pydantic-settings reads them; tables as JSON."""
    source = StreamsConfig.model_config
    from pydantic_settings import EnvSettingsSource, SettingsError

    variables = EnvSettingsSource(
        StreamsConfig,
        env_prefix=str(source.get("env_prefix", "")),
        env_nested_delimiter=source.get("env_nested_delimiter"),
    )
    try:
        return variables()
    except SettingsError:
        # Not the text itself, nor a cause that holds it: it may be a password.
        raise ConfigError(
            'STREAMS_KAFKA or STREAMS_SPARK is not a JSON object of texts, such as {"security.protocol": "SASL_SSL"}'
        ) from None
