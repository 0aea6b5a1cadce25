"""Commits offsets with metadata through librdkafka's C API, so that the metadata are committed as they are.

confluent-kafka 2.x counts the zero byte behind a text as part of the metadata. Kafka Streams in Java does not read such metadata
("Unsupported offset metadata found"): after `streams export-app` it knew no closed window, and gave all results on close again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

from state.errors import ClientFailure
from state.kafka.librdkafka import COMMIT_CALLBACK, CONSUMER, TopicPartitionList, library
from state.kafka.topics import TopicPartition


def commit_offsets(
    properties: Mapping[str, str], offsets: Mapping[TopicPartition, tuple[int, str]]
) -> list[ClientFailure]:
    """Commits offsets of the group in the properties of a consumer, which never joins it; the failures.

    Raises:
        KafkaClientError: No consumer can be made with these properties.
    """
    found, cells, failures = library(), [text.encode() for _, text in offsets.values()], list[ClientFailure]()

    def committed(_client: int, error: int, places: ctypes._Pointer[TopicPartitionList], _opaque: int) -> None:
        each = [places.contents.elems[at].err for at in range(places.contents.cnt)] if places else []
        failures.extend(found.failure(code) for code in dict.fromkeys((error, *each)) if code)

    client, places = found.client(CONSUMER, found.configuration(properties)), found.topic_partition_list_new(len(cells))
    try:
        for ((topic, partition), (offset, _)), data in zip(offsets.items(), cells, strict=True):
            entry = found.topic_partition_list_add(places, topic.encode(), partition).contents
            entry.offset, entry.metadata_size = offset, len(data)
            entry.metadata = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value if data else None
        code = found.commit_queue(client, places, None, COMMIT_CALLBACK(committed), None)
        return failures or ([found.failure(code)] if code else [])
    finally:
        # The metadata are Python's, and freeing the list would free them, too.
        for at in range(len(cells)):
            places.contents.elems[at].metadata, places.contents.elems[at].metadata_size = None, 0
        found.topic_partition_list_destroy(places)
        found.destroy_flags(client, 0)
