"""What a workload is, and what a run of it is given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from benchmarks.generators.records import Batch
from benchmarks.generators.text import padded, texts
from benchmarks.verify import output
from benchmarks.verify.compare import Verdict
from state.kafka.key_hash import partition_for_key
from streams import Topology

PARTITIONS = 4
SIZES = ("smoke", "small", "full")
CLOSING_MS = 3_600_000
"""How far the closing records of each round are behind those before."""


@dataclass(frozen=True)
class RunConfig:
    """What a peer is told about a run: its configuration file. `benchmarks/README.md` explains the fields."""

    workload: str
    application_id: str
    bootstrap_servers: str
    topics: Mapping[str, str]
    partitions: int
    threads: int
    guarantee: str
    state_dir: str
    parameters: Mapping[str, Any]
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def client(self) -> dict[str, str]:
        """Kafka client properties."""
        return {"bootstrap.servers": self.bootstrap_servers}


@dataclass(frozen=True)
class Output:
    """The output of a run, and how the peer's results are to be read.

    Attributes:
        config: The run.
        retracts: Whether a session that grows is deleted under its old key.
        sliding: Which sliding windows the peer has: `both` or `left`.
    """

    config: RunConfig
    retracts: bool = True
    sliding: str = "both"

    @property
    def duplicates(self) -> bool:
        """Whether a result may be there more than once."""
        return self.config.guarantee != "exactly-once"

    def last_values(self, role: str = "out") -> tuple[dict[bytes, Any], int]:
        """The table that a topic amounts to, and the number of its records."""
        return output.last_values(self.config.client, self.config.topics[role], self.config.partitions)

    def rows(
        self,
        read: Callable[[bytes, Any], output.Row],
        role: str = "out",
        parse: Callable[[bytes], Any] = orjson.loads,
    ) -> list[output.Row]:
        """Every record of a topic as a row of numbers."""
        return output.rows(self.config.client, self.config.topics[role], self.config.partitions, read, parse)


class Workload(ABC):
    """A workload: its input, what is to be computed, and the verifier.

    Attributes:
        name: Its name on the command line.
        title: What is computed, in a few words.
        inputs: The roles of the input topics.
        looked_up: The roles of the input topics of global tables, for which no offsets are committed.
        outputs: The roles of the output topics.
        partitions: Of each input and output topic.
        procedure: How it is run and measured: `drain`, `restore`, `latency` or `recovery`.
        grows: Whether its input grows while a system runs, so that each run needs an input of its own.
        sizes: The number of records by name of the size (of the role that is measured first).
        parameters: What a peer needs to know besides the topics.
        closes: Whether closing records are needed.
    """

    name: str
    title: str
    inputs: Sequence[str] = ("events",)
    looked_up: Sequence[str] = ()
    outputs: Sequence[str] = ("out",)
    partitions: int = PARTITIONS
    procedure: str = "drain"
    grows: bool = False
    sizes: Mapping[str, int]
    parameters: Mapping[str, Any] = {}
    closes: bool = False

    def varied(self, **attributes: Any) -> Workload:
        """The same workload with other attributes, such as `sizes` or `parameters`.

        The engine and the peers know it by its name, so only the input and the parameters may differ.
        """
        other = copy(self)
        for name, value in attributes.items():
            setattr(other, name, value)
        return other

    def parameters_of(self, size: str) -> Mapping[str, Any]:
        """The parameters of a size, where they depend on it."""
        return self.parameters

    @abstractmethod
    def batches(self, size: str) -> Iterator[Batch]:
        """The input, in the order in which it is loaded."""

    def probes(self, size: str) -> Iterator[Batch]:
        """Input that is sent once the rest is consumed."""
        return iter(())

    @abstractmethod
    def topology(self, config: RunConfig) -> Topology:
        """The engine's program."""

    @abstractmethod
    def verify(self, size: str, found: Output) -> Verdict:
        """Compares the output with the recomputation."""

    def closing(self, round_: int, end_ms: int) -> Iterator[Batch]:
        """Records that make time pass: one for each partition of each input topic.

        Args:
            round_: The number of the round, from 1.
            end_ms: The largest timestamp of the input.
        """
        keys = [closing_key(partition, self.partitions) for partition in range(self.partitions)]
        sample = padded('{"n":NNNNNNNN,"v":10.000', 100)
        for role in self.inputs:
            values = texts(sample, {"NNNNNNNN": np.full(self.partitions, 99_999_999 - round_)}, self.partitions)
            times = np.full(self.partitions, end_ms + CLOSING_MS * round_)
            yield Batch(role, pa.array(keys, pa.binary()), values, times)


def closing_key(partition: int, partitions: int) -> bytes:
    """A closing record's key for a partition."""
    number = 0
    while partition_for_key(key := b"close-%d" % number, partitions) != partition:
        number += 1
    return key


def windowed_key(key: bytes) -> tuple[int, int]:
    """The key's number and the window's start: of `k-0000123|<start>`, or of Kafka Streams' bytes `key, start (8)`."""
    if b"\0" not in key:  # every start's bytes begin with it, and may have a bar, too
        inner, start = key.split(b"|")
        return number_of(inner), int(start)
    return number_of(key[:-8]), int.from_bytes(key[-8:], "big")


def session_key(key: bytes) -> tuple[int, int, int]:
    """The key's number, the session's start and end.

    The key is `key|<start>|<end>`, or has Kafka Streams' bytes: `key, end (8), start (8)`.
    """
    if b"\0" not in key:
        inner, start, end = key.split(b"|")
        return number_of(inner), int(start), int(end)
    return number_of(key[:-16]), int.from_bytes(key[-8:], "big"), int.from_bytes(key[-16:-8], "big")


def number_of(key: bytes) -> int:
    """The number in a key such as `k-0000123`."""
    return int(key[key.index(b"-") + 1 :])
