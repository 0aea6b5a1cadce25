"""The rules that decide the partition of a record, by their names in settings and messages; `partitioner` computes them."""

from __future__ import annotations

from enum import Enum


class Placement(str, Enum):
    """The rule that decides the partition of a record, and so the task that has its key."""

    MURMUR2 = "murmur2"
    """`toPositive(murmur2(key)) % partitions`: Java (`BuiltInPartitioner`), kafkajs, franz-go, librdkafka's `murmur2_random`."""
    CRC32 = "crc32"
    """CRC-32 modulo partitions: librdkafka's default, `consistent_random`, and so Python, Go, .NET, PHP and Ruby."""
    FNV1A = "fnv1a"
    """FNV-1a of 32 bits: Sarama's `NewHashPartitioner`, librdkafka's `fnv1a_random`."""
    PARTITION = "partition"
    """Independent of the key: a task has the records of its own partition, whatever their keys, as in Kafka Streams."""

    @property
    def used_by(self) -> str:
        """The programs that use this rule by default, for messages."""
        return _USED_BY[self]


_USED_BY = {
    Placement.MURMUR2: "the default of Java, kafkajs and franz-go, murmur2_random in librdkafka",
    Placement.CRC32: "the default of librdkafka: of confluent-kafka in Python, Go and .NET, of PHP and Ruby",
    Placement.FNV1A: "the default of Sarama, fnv1a_random in librdkafka",
    Placement.PARTITION: "no function of the key",
}
FUNCTIONS = (Placement.MURMUR2, Placement.CRC32, Placement.FNV1A)
"""The functions of keys. If several fit, the first one is taken."""
