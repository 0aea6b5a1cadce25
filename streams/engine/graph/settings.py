"""The settings of the reader's head and of the task, apart from the topology, and the names of their counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from state.kafka.placement import Placement
from streams.errors import ConfigError

if TYPE_CHECKING:
    from streams.operators.operator import Mode

Policy = Literal["fail", "skip", "dlq"]


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """Settings of one run. Pure data: picklable, the same in every process.

    Attributes:
        application_id: Prefix of internal topics.
        mode: `strict`, or `compat` to reproduce Kafka Streams' flaws.
        deserialization: What to do with a record that cannot be read (Kafka Streams:
            `deserialization.exception.handler`): fail the step, skip and count it, or send it to the dead-letter topic.
        processing: What to do with a record for which an operator raises an exception (KIP-1033).
        production: What to do with a result that cannot be serialised or that Kafka would refuse (`streams.engine.graph.outputs`).
        future: What to do with a record whose timestamp is more than `max_future_ms` ahead of the step's wall clock.
        dead_letter_topic: Target of the policy `dlq` (KIP-1034); required if any policy is `dlq`.
        global_table_errors: The policy for records of global tables, which have no dead letters; None = the policies above.
        max_record_bytes: Largest result, bytes: key, value, headers and Kafka's overhead.
        max_message_bytes: Largest record of any kind that the Kafka client sends (`message.max.bytes`). It limits rows of state.
        max_future_ms: How far a timestamp may be ahead of the wall clock, milliseconds. None = any distance, for the
            event times of tests and simulations, which are unrelated to any clock. A record beyond the limit advances no time.
        partition_counts: Partitions of output topics whose cluster cannot be asked; needed for custom partitioners only.
        emit_interval_ms: In `compat` mode, the least wall-clock time between two checks for closed windows or
            unjoined records (Kafka Streams: 1000 in production, 0 in its test driver). `strict` mode never waits.
        idle_timeout_ms: Wall-clock time without records after which a task's event time follows the wall clock,
            ms; None = never. See `streams.engine.task.task`.
        times_operators: Count the CPU time of each operator (`CPU_NS`).
        placement: The rule by which a record goes to its task.
        placements: The placement of each repartition or retry topic whose readers do not use murmur2.
        follow: The key whose records are sampled (`streams.engine.graph.following`); empty: none.
        follow_masked: The fields of values that samples do not show.
    """

    application_id: str
    mode: Mode = "strict"
    deserialization: Policy = "fail"
    processing: Policy = "fail"
    production: Policy = "fail"
    future: Policy = "fail"
    dead_letter_topic: str | None = None
    global_table_errors: Policy | None = None
    max_record_bytes: int = 1_000_000
    max_message_bytes: int = 1_000_000
    max_future_ms: int | None = None
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    emit_interval_ms: int = 0
    idle_timeout_ms: int | None = None
    times_operators: bool = False
    placement: Placement = Placement.MURMUR2
    placements: Mapping[str, Placement] = field(default_factory=dict)
    follow: str = ""
    follow_masked: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Refuses the policy `dlq` without a dead-letter topic."""
        if (
            "dlq" in (self.deserialization, self.processing, self.production, self.future)
            and not self.dead_letter_topic
        ):
            raise ValueError("a policy is 'dlq' but no dead_letter_topic is set; set one, or use 'fail' or 'skip'")

    @property
    def keeps_source_bytes(self) -> bool:
        """Whether the task may have to send a record's original bytes to the dead-letter topic."""
        return "dlq" in (self.processing, self.production, self.future)


# --- Counters of one step. Their names are flat, so that counters can be added up over tasks and printed.
#
# `in:<node>`, `out:<node>`, `dropped:<node>:<reason>`, `skipped:<stage>`, `dead_letters:<stage>`.
# `one_by_one:<node>:<reason>`: records of steps that a node should have processed together, but could not.
# Of `enrich`: `calls:<node>`, `retries:<node>` (repeated calls), `failures:<node>` (failed calls), `call_ms:<node>` (their total
# duration).
# `cpu_ns:<node>`: CPU time, where operators are timed: of a source and its head, and of the nodes of a task that are timed together
# (`streams.topology.planning.units`), under the name of the first one. `followed:<sample>`: a sample of a record
# (`streams.engine.graph.following`). `restored_from_copy`: 1 if a step, or a live task at its start, had to restore its stores and
# began with a snapshot or a replica's copy.
# `early:<source>`: rows from outside Kafka with a time before 1970.
# `looked_up:<node>`, `unmatched:<node>:<reason>`: records that a join has looked up on its other side, and how many of them found
# no match. `moved`, counted by the driver: steps, or starts of live tasks, on another host than before.

ONE_BY_ONE: Final = "one_by_one:"
CPU_NS: Final = "cpu_ns:"
LOOKED_UP: Final = "looked_up:"
UNMATCHED: Final = "unmatched:"
RESTORED_FROM_COPY: Final = "restored_from_copy"
MOVED: Final = "moved"


class Counters(dict[str, int]):
    """Name -> count. A name whose count is 0 is absent."""

    def add(self, name: str, count: int = 1) -> None:
        if count:
            self[name] = self.get(name, 0) + count

    def add_all(self, counts: Mapping[str, int]) -> None:
        for name, count in counts.items():
            if count:
                self[name] = self.get(name, 0) + count

    def since(self, before: Mapping[str, int]) -> Counters:
        """The counts added since `before`, an earlier copy of these counters."""
        found = Counters()
        for name, count in self.items():
            found.add(name, count - before.get(name, 0))
        return found


def global_table_settings(settings: TaskSettings) -> TaskSettings:
    """The settings for reading global tables: their own policy, if there is one, replaces the stages' policies.

    Raises:
        ConfigError: A policy is `dlq`.
    """
    own = settings.global_table_errors
    if own is not None:
        settings = replace(settings, deserialization=own, processing=own)
    if "dlq" in (settings.deserialization, settings.processing):
        raise ConfigError(
            "the topology has global tables, and the policy for bad records is 'dlq', but global tables have no dead letters: each "
            "process reads them for itself, and would send its own. Set global_table_errors to 'fail' or 'skip' for them"
        )
    return settings
