"""All settings of an application (`StreamsConfig`), and the notation of addresses and durations."""

from __future__ import annotations

import re
from datetime import timedelta
from enum import Enum
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from state.kafka.placement import Placement
from state.secrets import redact, remember
from streams.errors import ConfigError
from streams.logs.output import LogFormat, LogLevel, LogSettings
from streams.topology.naming import wrong_application_id

if TYPE_CHECKING:
    from state.restore.snapshots import SnapshotSettings

# --- Addresses: `HOST:PORT`, `[::1]:PORT`, `:PORT` or `PORT`

LOOPBACK = "127.0.0.1"
_FORM = re.compile(r"(?:(?P<host>\[[0-9a-fA-F:.]+\]|[^:\s\[\]]*):)?(?P<port>\d{1,5})")


class Address(NamedTuple):
    """The address where a server listens; port 0 means a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only programs on this host can connect."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    @classmethod
    def parse(cls, text: str) -> Address:
        """Reads an address from text. Without a host, only programs on this host can connect."""
        found = _FORM.fullmatch(text.strip())
        if found is None or int(found["port"]) > 65535:
            raise ValueError(
                f"{text!r} is not an address: write HOST:PORT, or a port alone for programs on this host only"
            )
        return cls((found["host"] or LOOPBACK).strip("[]"), int(found["port"]))


# --- Durations as people write them: `500ms`, `5s`, `10m`, `1h30m`, `7d`, or a bare number of milliseconds.
#
# Settings whose names end in `_ms` accept durations on the command line, in a TOML file and in the environment, as do
# starting offsets (`duration:10m`); inside the program durations are plain milliseconds.

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART = r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)"
_WHOLE = re.compile(rf"(?:{_PART}\s*)+")
_EXAMPLES = "500ms, 5s, 10m, 1h30m or 7d, or a number of milliseconds"


def to_milliseconds(value: Any) -> Any:
    """Converts a text or a `timedelta` to milliseconds. Other values are returned unchanged, for pydantic to check."""
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if not isinstance(value, str):
        return value
    text = value.strip().replace("_", "")
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{value!r} is not a duration: write {_EXAMPLES}")
    total = sum(float(number) * _UNITS[unit] for number, unit in re.findall(_PART, text))
    if total != int(total):
        raise ValueError(f"{value!r} is not a whole number of milliseconds")
    return int(total)


def in_words(milliseconds: int) -> str:
    """The shortest exact form of a duration, such as `1d`, `90s` or `1500ms`."""
    if milliseconds == 0:
        return "0"
    for unit in ("d", "h", "m", "s"):
        if milliseconds % _UNITS[unit] == 0:
            return f"{milliseconds // _UNITS[unit]}{unit}"
    return f"{milliseconds}ms"


def age_in_words(ms: int) -> str:
    """A duration that can be read at a glance: `3 s`, `12 min`, `5 h`, `40 d`."""
    seconds = max(0, ms) // 1000
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


DurationMs = Annotated[int, BeforeValidator(to_milliseconds), WithJsonSchema({"type": ["integer", "string"]})]
"""The type of a setting in milliseconds. A field of this type also takes durations with a unit."""


# --- The definition of one setting with its documentation, as used in errors, `streams config` and
# `docs/configuration.md`.


def setting(says: str, default: Any = ..., *, unit: str = "", shown: str | None = None, **limits: Any) -> Any:
    """Makes one field of `StreamsConfig`, with its documentation."""
    if "default_factory" not in limits:
        limits["default"] = default
    return Field(description=says, json_schema_extra={"unit": unit, "shown": shown}, **limits)


# --- All settings of an application, as one class: `StreamsConfig`.
#
# The class has plain values only and can be printed: secrets of the Kafka client are masked.

MOST_SPILL_BYTES = 1024 * 1024 * 1024
SHORTEST_TOKEN = 16
MESSAGE_MAX_BYTES = 1_000_000
"""librdkafka's default for `message.max.bytes`."""


class Mode(str, Enum):
    """Semantics: `strict` corrects oddities of Kafka Streams, `compat` reproduces them."""

    STRICT = "strict"
    COMPAT = "compat"


class Execution(str, Enum):
    """How sub-topologies run: in micro-batches of Spark, or live, in workers that read their own partitions."""

    AUTO = "auto"
    LIVE = "live"
    MICRO_BATCH = "micro-batch"


class ErrorPolicy(str, Enum):
    """The policy for a bad record: fail (default), skip and count, or send to the dead letter topic."""

    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dlq"


class StreamsConfig(BaseSettings):
    """All settings of an application. Each field has its unit, its default and a description.

    `docs/configuration.md`, `streams config` and the errors about settings are generated from these fields.
    """

    model_config = SettingsConfigDict(
        env_prefix="STREAMS_", env_nested_delimiter="__", extra="forbid", validate_default=True, use_enum_values=False
    )

    application_id: str = setting(
        "Prefix of internal topics and transactional ids, and name of the consumer group that shows the lag.",
        default=...,
        min_length=1,
        max_length=150,
    )
    bootstrap_servers: str = setting(
        "Addresses of the Kafka cluster, `host:port,...`. Required to connect to Kafka.", ""
    )
    kafka: dict[str, str] = setting(
        "Other properties of the Kafka client (librdkafka), such as `security.protocol`, `sasl.*` and `ssl.*`.",
        default_factory=dict,
    )
    base_dir: Path = setting("Folder for state and checkpoints, unless you set them separately.", Path("var"))
    state_dir: Path = setting("Folder for the local stores on each executor.", Path(), shown="<base_dir>/state")
    replica_dir: Path = setting(
        "Folder for the copies that `streams replica` keeps on this host. A task without local state takes over its copy.",
        Path(),
        shown="<base_dir>/replicas",
    )
    checkpoint_dir: str = setting(
        "Folder for Spark's checkpoints of this application. On a cluster, all hosts share it.",
        "",
        shown="<base_dir>/checkpoint/<application_id>",
    )
    tasks: int | None = setting(
        "Number of tasks in each sub-topology. Not set: the largest number of partitions of its sources. Decided at the "
        "first start; change it with `streams rescale`.",
        None,
        ge=1,
        le=10_000,
    )
    placement: Placement | None = setting(
        "How keys are assigned to tasks. Name the partitioner of the producers, `murmur2` (Java, kafkajs, franz-go), "
        "`crc32` (librdkafka's default: Python, Go, .NET, PHP) or `fnv1a` (Sarama); or `partition`: each task has the "
        "records of one partition, whatever their keys are, as in Kafka Streams. Not set: the partitioner that explains "
        "the keys in the topics. Decided at the first start; change it with `streams rescale`.",
        None,
    )
    mode: Mode = setting("`strict` fixes oddities of Kafka Streams, `compat` reproduces them.", Mode.STRICT)
    ensure_explicit_naming: bool = setting(
        "Refuse to start if a store or a repartition topic has a generated name.", False
    )
    starting_offsets: str = setting(
        "Where to start reading at the first start, for sources without their own reset policy: `earliest`, `latest`, "
        "`timestamp:<ms>`, or `duration:<duration>` before the start.",
        "earliest",
        pattern=r"^(earliest|latest|(timestamp|duration):\d+)$",
    )
    on_lost_offsets: str = setting(
        "What to do if retention has deleted records before they were read: `fail`, or continue at the `earliest` or "
        "`latest` offset.",
        "fail",
        pattern="^(fail|earliest|latest)$",
    )
    max_records_per_trigger: int = setting(
        "Maximum number of records in a micro-batch, over all partitions.", 1_000_000, unit="records", ge=1
    )
    memory_bytes: int = setting(
        "Memory for records and state on each host, shared by micro-batches, write buffers, prefetched records and the "
        "caches of the stores. Java and Python need about 800 MiB more.",
        256 * 1024 * 1024,
        unit="bytes",
        ge=16 * 1024 * 1024,
    )
    max_bytes_per_trigger: int = setting(
        "Maximum size of the keys and values in a micro-batch, estimated from a sample.",
        0,
        unit="bytes",
        ge=0,
        shown="half of `memory_bytes`",
    )
    trigger_interval_ms: DurationMs = setting(
        "Time between the starts of two micro-batches. 0: start the next one as soon as one is done. In live execution, "
        "`commit_interval_ms` applies instead.",
        0,
        ge=0,
    )
    execution: Execution = setting(
        "How sub-topologies run. `auto`: live if possible, otherwise in micro-batches. `live`: in workers that read their"
        " own partitions and commit results as soon as possible; a program that cannot run live is an error. "
        "`micro-batch`: in Spark's micro-batches. The state is the same, so you can change this from one start to the "
        "next.",
        Execution.AUTO,
    )
    commit_interval_ms: DurationMs = setting(
        "In live execution, the time between two commits of a task (`commit.interval.ms` in Kafka Streams).", 100, ge=1
    )
    available_now: bool = setting("Process the existing input, then stop.", False)
    broker_wait_ms: DurationMs = setting(
        "How long brokers, or the target of a sink, may be away before the application stops with an error. Until then it"
        " waits, reports the outage, and continues when they are back. 0: stop at once.",
        600_000,
        ge=0,
    )
    wall_clock_interval_ms: DurationMs | None = setting(
        "Give each task a step at least this often, even without records, and one at the start, so that wall-clock "
        "punctuators run and idle windows close. Each step is a commit. Not set: only steps with records. Cannot be "
        "combined with `available_now`.",
        None,
        ge=100,
    )
    idle_timeout_ms: DurationMs | None = setting(
        "If a task has had no records for this long, its stream time advances with the wall clock: windows close, rows "
        "expire, and joins emit unmatched rows without further records. Older records that arrive later are late. Not "
        "set: only records advance stream time, and results do not depend on when records arrive. Needs "
        "`wall_clock_interval_ms`. Cannot be used with `available_now` or behind a repartition topic.",
        None,
        ge=1,
    )
    emit_interval_ms: DurationMs = setting(
        "In compat mode, the minimum wall-clock time between two checks for windows to emit on close and for unmatched "
        "rows of stream joins (`__emit.interval.ms.kstreams.windowed.aggregation__` and "
        "`__emit.interval.ms.kstreams.outer.join.spurious.results.fix__` in Kafka Streams, where it is 1000). 0: check "
        "after each record.",
        0,
        ge=0,
    )
    deserialization: ErrorPolicy = setting(
        "Policy for records that a serde cannot read, or that have no valid timestamp.", ErrorPolicy.FAIL
    )
    processing: ErrorPolicy = setting("Policy for exceptions in your functions.", ErrorPolicy.FAIL)
    production: ErrorPolicy = setting(
        "Policy for results that cannot be serialised, or that Kafka would refuse: too large, without a key for a "
        "compacted topic, with a timestamp that the topic does not accept, or for a topic that does not exist or is not "
        "allowed.",
        ErrorPolicy.FAIL,
    )
    future: ErrorPolicy = setting(
        "Policy for records with a timestamp more than `max_future_ms` ahead of the batch time.", ErrorPolicy.FAIL
    )
    dead_letter_topic: str | None = setting("Topic for the bad records of the policy `dlq`.", None)
    global_table_errors: ErrorPolicy | None = setting(
        "Policy for records of global tables, `fail` or `skip`. Not set: the other policies apply. `dlq` is refused, "
        "because each process reads a global table and would send a separate dead letter.",
        None,
    )
    max_record_bytes: int = setting(
        "Maximum size of a result: key, value, headers and Kafka's overhead. If it is more than 1 000 000, the client's "
        "`message.max.bytes` is increased as well; increase `max.message.bytes` of the topics yourself.",
        MESSAGE_MAX_BYTES,
        unit="bytes",
        ge=1_000,
    )
    max_future_ms: DurationMs | None = setting(
        "How far ahead of the batch time a timestamp may be. `none`: no limit, for simulations and other event times that"
        " are in the future on purpose.",
        86_400_000,
        ge=0,
    )
    trim_delay_ms: DurationMs = setting(
        "How long expired changelog records of windowed stores are kept. Until then, you can restore state that expired "
        "because of a wrong timestamp. 0: delete them with the next step.",
        86_400_000,
        ge=0,
    )
    snapshot_dir: str = setting(
        "Where to store snapshots of the stores: a folder, if possible on a disk that all hosts share, or a URL for "
        "fsspec such as `s3://bucket/path` (`pip install 'streams-on-spark[snapshots]'`). Empty: no snapshots.",
        "",
    )
    snapshot_interval_ms: DurationMs = setting(
        "Time between two snapshots of a task. Keep it well below half of `delete.retention.ms` of the changelogs (a "
        "week): an older snapshot may have missed deletions and is not used.",
        600_000,
        ge=1_000,
    )
    snapshot_steps: int | None = setting(
        "Also take a snapshot after this many steps of a task. Not set: only the time counts.", None, ge=1
    )
    snapshots_kept: int = setting("How many snapshots of a task to keep.", 3, unit="snapshots", ge=1)
    replication_factor: int = setting(
        "Replication factor of internal topics. -1: the default of the broker.", -1, ge=-1
    )
    transaction_timeout_ms: DurationMs = setting("Transaction timeout of the producers.", 60_000, ge=1_000, le=900_000)
    spill_bytes: int = setting(
        "Maximum size of the write buffer of a step; a larger buffer spills to disk. At most 1 GiB.",
        0,
        unit="bytes",
        ge=0,
        le=MOST_SPILL_BYTES,
        shown="an eighth of `memory_bytes`",
    )
    bulk_io: bool = setting("Use librdkafka's C API. `false`: the ordinary Python client.", True)
    metrics: str = setting(
        "Address for Prometheus metrics (`/metrics`) and for probes: whether the application is alive (`/health`) and "
        "working (`/ready`). `HOST:PORT`, or only a port for programs on this host. Port 0: a free port. Empty: none.",
        "",
    )
    ui: str = setting(
        "Address of the dashboard of the running application (`pip install 'streams-on-spark[serve]'`): `HOST:PORT`, or "
        "only a port for programs on this host. Port 0: a free port. Other hosts need `ui_token`. Empty: none.",
        "",
    )
    ui_token: str = setting(
        "Token that is required to open the dashboard and to replay dead letters: a secret of at least 16 characters, "
        "best set in the environment (`STREAMS_UI_TOKEN`). Empty: only this host can open the dashboard, and nothing can "
        "be changed with it.",
        "",
    )
    ui_stores: str = setting(
        "Address of a `streams serve` process, to browse its stores in the dashboard: `http://HOST:PORT`. Empty: none.",
        "",
    )
    ui_stores_token: str = setting(
        "Bearer token for that process: a secret, best set in the environment (`STREAMS_UI_STORES_TOKEN`). Empty: none.",
        "",
    )
    ui_follow: str = setting(
        "A key to follow in the dashboard: its last records in each operator, and which ones are dropped and why. Their "
        "values appear in the dashboard and in the log lines of steps. Empty: none.",
        "",
    )
    ui_follow_masked: str = setting(
        "Fields of these records to hide, separated by commas. Texts outside of fields are hidden, too.",
        "",
    )
    serve: str = setting(
        "Address where the stores are [served](serve.md) while the application runs (`pip install "
        "'streams-on-spark[serve]'`): `HOST:PORT`, or only a port for programs on this host. Port 0: a free port. Other "
        "hosts need `serve_callers`. Empty: none.",
        "",
    )
    serve_callers: Path | None = setting(
        "Who may read served stores: a private file in which each line has a token of at least 16 characters, `read`, "
        "`write` or `admin`, and a name. `none`: programs on this host.",
        None,
    )
    otel: bool = setting(
        "Send metrics with OpenTelemetry (`pip install 'streams-on-spark[otel]'`). Set the target and the interval with "
        "its own variables, such as `OTEL_EXPORTER_OTLP_ENDPOINT`.",
        False,
    )
    log_format: LogFormat = setting(
        "Format of standard error: `text`, or `json` with one object per line and a line for each step.",
        LogFormat.TEXT,
    )
    log_level: LogLevel | None = setting(
        "Minimum level of log lines, in workers as well.",
        None,
        shown="`info` as JSON, `warning` as text",
    )
    spark: dict[str, str] = setting("Other Spark settings, `spark.*`.", default_factory=dict)

    @field_validator("application_id")
    @classmethod
    def _fit_for_topics(cls, value: str) -> str:
        if (wrong := wrong_application_id(value)) is not None:
            raise ValueError(f"{value!r} is not an application id: {wrong}")
        return value

    @field_validator(
        "tasks",
        "placement",
        "wall_clock_interval_ms",
        "idle_timeout_ms",
        "dead_letter_topic",
        "global_table_errors",
        "serve_callers",
        "max_future_ms",
        "snapshot_steps",
        "log_level",
        mode="before",
    )
    @classmethod
    def _none(cls, value: Any) -> Any:
        """Returns None for the word `none`, because TOML, the environment and the command line have no null."""
        return None if value == "none" else value

    @field_validator("metrics", "ui", "serve", mode="before")
    @classmethod
    def _listening_address(cls, value: Any) -> Any:
        """Returns the address in full; a number alone is a port."""
        if isinstance(value, int | str) and (text := str(value).strip()):
            return str(Address.parse(text))
        return value

    # It is defined after `_listening_address`, and is therefore called before it.
    @field_validator(
        *("metrics", "ui", "ui_token", "ui_stores", "ui_stores_token", "ui_follow", "serve", "snapshot_dir"),
        mode="before",
    )
    @classmethod
    def _empty(cls, value: Any) -> Any:
        return "" if value == "none" else value

    @field_validator("starting_offsets", mode="before")
    @classmethod
    def _starting_duration(cls, value: Any) -> Any:
        """Turns `duration:10m` into `duration:600000`."""
        if isinstance(value, str) and value.startswith("duration:"):
            return f"duration:{to_milliseconds(value.removeprefix('duration:'))}"
        return value

    @model_validator(mode="after")
    def _secrets(self) -> StreamsConfig:
        """Notes the secrets, so that they are masked in everything that this process shows from now on."""
        named = ("snapshot_dir", "ui_token", "ui_stores_token")
        for settings in (self.kafka, self.spark, {name: getattr(self, name) for name in named}):
            remember(settings)
        return self

    @model_validator(mode="after")
    def _page(self) -> StreamsConfig:
        if self.ui_token and len(self.ui_token) < SHORTEST_TOKEN:
            raise ValueError(
                f"ui_token has fewer than {SHORTEST_TOKEN} characters, so it could be guessed: use the output of "
                '`python -c "import secrets; print(secrets.token_urlsafe())"`'
            )
        if self.ui_address is not None and not self.ui_token and not self.ui_address.is_loopback:
            raise ValueError(
                f"the dashboard at {self.ui_address} could be read from other hosts: set ui_token (STREAMS_UI_TOKEN), or serve "
                f"it on this host only (--ui {self.ui_address.port})"
            )
        if self.ui_stores and not self.ui_stores.startswith(("http://", "https://")):
            raise ValueError(f"ui_stores is an address such as http://localhost:8080, not {self.ui_stores!r}")
        return self

    @model_validator(mode="after")
    def _complete(self) -> StreamsConfig:
        if self.state_dir == Path():
            self.state_dir = self.base_dir / "state"
        if self.replica_dir == Path():
            self.replica_dir = self.base_dir / "replicas"
        self.state_dir, self.replica_dir = self.state_dir.absolute(), self.replica_dir.absolute()
        if self.snapshot_dir and "://" not in self.snapshot_dir:
            self.snapshot_dir = str(Path(self.snapshot_dir).absolute())
        if self.log_format is LogFormat.JSON:
            self.spark = {"spark.log.structuredLogging.enabled": "true", **self.spark}
        self.max_bytes_per_trigger = self.max_bytes_per_trigger or self.memory_bytes // 2
        self.spill_bytes = self.spill_bytes or min(self.memory_bytes // 8, MOST_SPILL_BYTES)
        self.bootstrap_servers = self.bootstrap_servers or self.kafka.get("bootstrap.servers", "")
        if not self.checkpoint_dir:
            self.checkpoint_dir = str(self.base_dir.absolute() / "checkpoint" / self.application_id)
        policies = (self.deserialization, self.processing, self.production, self.future)
        if ErrorPolicy.DEAD_LETTER in policies and not self.dead_letter_topic:
            raise ValueError(
                "an error policy is 'dlq', but dead_letter_topic is not set: name the topic (--dead-letter-topic NAME on the "
                "command line)"
            )
        if self.global_table_errors is ErrorPolicy.DEAD_LETTER:
            raise ValueError("global_table_errors is 'fail' or 'skip': global tables have no dead letters")
        if self.idle_timeout_ms is not None and self.wall_clock_interval_ms is None:
            raise ValueError(
                "idle_timeout_ms is set, but wall_clock_interval_ms is not: an idle task advances its time in steps without "
                "records, so set how often it gets one (1000, for instance)"
            )
        if self.emit_interval_ms and self.mode is Mode.STRICT:
            raise ValueError(
                "emit_interval_ms is set, but the mode is strict, which emits closed windows at once: set mode to compat"
            )
        return self

    @model_validator(mode="after")
    def _serve_protected(self) -> StreamsConfig:
        if self.serve_address is not None and self.serve_callers is None and not self.serve_address.is_loopback:
            raise ValueError(
                f"the stores at {self.serve_address} could be read from other hosts: set serve_callers, or serve them on this "
                f"host only (--serve {self.serve_address.port})"
            )
        return self

    @property
    def client(self) -> dict[str, str]:
        """Client properties for librdkafka, secrets included: never print them."""
        if not self.bootstrap_servers:
            raise ConfigError("no Kafka cluster is given: set bootstrap_servers, or STREAMS_BOOTSTRAP_SERVERS")
        sizes = {"message.max.bytes": str(self.max_record_bytes)} if self.max_record_bytes > MESSAGE_MAX_BYTES else {}
        return {**sizes, **self.kafka, "bootstrap.servers": self.bootstrap_servers}

    @property
    def metrics_address(self) -> Address | None:
        """The address where metrics are served; None if they are not."""
        return Address.parse(self.metrics) if self.metrics else None

    @property
    def ui_address(self) -> Address | None:
        """The address of the dashboard; None if there is none."""
        return Address.parse(self.ui) if self.ui else None

    @property
    def serve_address(self) -> Address | None:
        """The address where the stores are served; None if they are not."""
        return Address.parse(self.serve) if self.serve else None

    @property
    def snapshots(self) -> SnapshotSettings:
        """Where and how often snapshots are taken."""
        # The module imports the libraries of columns, which no command needs to read its settings.
        from state.restore.snapshots import SnapshotSettings

        return SnapshotSettings(self.snapshot_dir, self.snapshot_interval_ms, self.snapshot_steps, self.snapshots_kept)

    @property
    def logs(self) -> LogSettings:
        """The format and the minimum level of log lines."""
        return LogSettings(self.log_format, self.log_level)

    @property
    def max_message_bytes(self) -> int:
        """The size of the largest record that the Kafka client sends, bytes."""
        return int(self.kafka.get("message.max.bytes", max(self.max_record_bytes, MESSAGE_MAX_BYTES)))

    def printable(self) -> dict[str, Any]:
        """All settings with secrets masked."""
        values = self.model_dump(mode="json")
        given = {name: value for name, value in values.items() if value != ""}
        return {**values, **redact(given), "kafka": redact(self.kafka), "spark": redact(self.spark)}

    def __repr__(self) -> str:
        return f"StreamsConfig({self.printable()})"

    __str__ = __repr__
