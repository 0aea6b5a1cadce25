"""The topic requests that the engine needs, batched: `KafkaAdmin`, and the values that it takes and returns."""

from state.kafka.admin.client import KafkaAdmin, LateAdmin
from state.kafka.topics import TopicInfo, TopicPartition, TopicSpec

__all__ = ["KafkaAdmin", "LateAdmin", "TopicInfo", "TopicPartition", "TopicSpec"]
