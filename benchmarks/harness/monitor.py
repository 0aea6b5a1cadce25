"""What happens while a system runs, seen from outside: how far it has read, what is committed, what it has used."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType

from confluent_kafka import Consumer, KafkaException, TopicPartition

from benchmarks.harness.system import System
from benchmarks.usage import TreeUsage
from benchmarks.workloads.base import RunConfig
from state.errors import KafkaClientError
from state.kafka.admin import KafkaAdmin

POLL_S = 0.1
_TIMEOUT_S = 10.0

Place = tuple[str, int]


class TooSlowError(Exception):
    """A run has not come to its end in time."""


@dataclass(frozen=True)
class Sample:
    """The state at one moment.

    Attributes:
        at: `time.perf_counter()`.
        offsets: The committed offset of each input partition; 0 for peers that do not commit offsets.
        ends: The end of each output partition, as a `read_committed` consumer sees it.
        cpu: CPU seconds so far by kind of process.
    """

    at: float
    offsets: tuple[int, ...]
    ends: tuple[int, ...]
    cpu: Mapping[str, float]

    @property
    def consumed(self) -> int:
        """Input records whose results are committed."""
        return sum(self.offsets)

    @property
    def outputs(self) -> int:
        """The offsets of the output so far."""
        return sum(self.ends)


class Monitor:
    """Samples a running system in a thread of its own, from before its start.

    Args:
        config: The run.
        usage: The usage of the system's processes.
        inputs: The input topics whose offsets count.
        outputs: The output topics.

    Attributes:
        samples: A sample for each change, and the first one.
    """

    def __init__(self, config: RunConfig, usage: TreeUsage, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
        self._inputs = [(config.topics[role], number) for role in inputs for number in range(config.partitions)]
        self._outputs = [(config.topics[role], number) for role in outputs for number in range(config.partitions)]
        self._usage = usage
        self._admin = KafkaAdmin(config.client)
        # It never joins the group; it only asks for what the group has committed.
        self._group = Consumer({**config.client, "group.id": config.application_id, "enable.auto.commit": False})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="monitor", daemon=True)
        self.started = time.perf_counter()
        nothing = (0,) * len(self._inputs), (0,) * len(self._outputs)
        self.samples: list[Sample] = [Sample(self.started, *nothing, usage.cpu_by_name())]

    def __enter__(self) -> Monitor:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._group.close()
        self._admin.close()

    @property
    def last(self) -> Sample:
        """The newest sample."""
        return self.samples[-1]

    def first_output_at(self) -> float | None:
        """When the first result was committed."""
        return next((sample.at for sample in self.samples if sample.outputs), None)

    def wait(self, system: System, consumed: int | None, quiet_s: float, timeout_s: float, outputs: int = 1) -> None:
        """Waits until the input is consumed and nothing has changed for a while.

        Args:
            system: The system, which must not end meanwhile.
            consumed: The number of input records; None: the peer does not commit offsets, so only the output tells.
            quiet_s: How long nothing may change.
            timeout_s: How long to wait.
            outputs: The least sum of the ends of the output partitions.

        Raises:
            TooSlowError: It took longer than that.
        """
        deadline = time.perf_counter() + timeout_s
        while True:
            system.check()
            now, last = time.perf_counter(), self.last
            read = consumed is None or last.consumed >= consumed
            if read and last.outputs >= outputs and now - last.at >= quiet_s:
                return
            if now > deadline:
                raise TooSlowError(
                    f"after {timeout_s:.0f} s {last.consumed:,} of {consumed} input records are consumed, "
                    f"and {last.outputs:,} offsets of the output are committed"
                )
            time.sleep(POLL_S)

    def _run(self) -> None:
        while not self._stop.wait(POLL_S):
            try:
                offsets, found = self._offsets(), self._admin.end_offsets(self._outputs)
            except (KafkaException, KafkaClientError):
                continue  # The broker is away (it may be part of the workload): asked again.
            ends = tuple(found[place] for place in self._outputs)
            if (offsets, ends) != (self.last.offsets, self.last.ends):
                self.samples.append(Sample(time.perf_counter(), offsets, ends, self._usage.cpu_by_name()))

    def _offsets(self) -> tuple[int, ...]:
        asked = [TopicPartition(*place) for place in self._inputs]
        return tuple(max(one.offset, 0) for one in self._group.committed(asked, _TIMEOUT_S))
