"""The librdkafka that confluent-kafka ships, through its public C API.

The module finds the shared library of the installed wheel, which exports librdkafka's public symbols. It declares the functions
that the bulk paths call. Calling them on Arrow buffers costs a quarter of making a Python object for each record.

Invariants: the process has one copy of the library, the one that confluent-kafka has loaded. If it is not found or lacks a
function, `bulk_available()` is False, and the ordinary client does the work.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterator, Mapping
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_void_p
from pathlib import Path

import confluent_kafka

from state.errors import ClientFailure, KafkaClientError
from state.kafka.config import QUIET
from state.kafka.topics import TopicPartition as Place
from state.machine_code import CLibrary, Signatures

PRODUCER = 0
CONSUMER = 1
NO_CONSUMER_CLOSE = 0x8
PURGE_ALL_NON_BLOCKING = 0x1 | 0x2 | 0x4
DISABLE_VARIABLE = "STREAMS_KAFKA_BULK"


class TopicPartition(ctypes.Structure):
    """librdkafka's `rd_kafka_topic_partition_t`."""

    _fields_ = (
        ("topic", c_char_p),
        ("partition", c_int32),
        ("offset", c_int64),
        ("metadata", c_void_p),
        ("metadata_size", c_size_t),
        ("opaque", c_void_p),
        ("err", c_int),
        ("private", c_void_p),
    )


class TopicPartitionList(ctypes.Structure):
    """librdkafka's `rd_kafka_topic_partition_list_t`."""

    _fields_ = (("cnt", c_int), ("size", c_int), ("elems", POINTER(TopicPartition)))


class Message(ctypes.Structure):
    """librdkafka's `rd_kafka_message_t`; the kernels read the same layout as nine 64-bit words."""

    _fields_ = (
        ("err", c_int),
        ("rkt", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("len", c_size_t),
        ("key", c_void_p),
        ("key_len", c_size_t),
        ("offset", c_int64),
        ("private", c_void_p),
    )


ERROR_CALLBACK = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_void_p)
ON_NEW_CALLBACK = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_size_t)
DELIVERY_CALLBACK = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Message), c_void_p)
COMMIT_CALLBACK = ctypes.CFUNCTYPE(None, c_void_p, c_int, POINTER(TopicPartitionList), c_void_p)

_LIST = POINTER(TopicPartitionList)
_SIGNATURES: Signatures = {
    "conf_new": (c_void_p, ()),
    "conf_set": (c_int, (c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)),
    "conf_destroy": (None, (c_void_p,)),
    "conf_set_dr_msg_cb": (None, (c_void_p, DELIVERY_CALLBACK)),
    "conf_set_log_cb": (None, (c_void_p, c_void_p)),
    "conf_set_error_cb": (None, (c_void_p, ERROR_CALLBACK)),
    "conf_interceptor_add_on_new": (c_int, (c_void_p, c_char_p, ON_NEW_CALLBACK, c_void_p)),
    "interceptor_add_on_send": (c_int, (c_void_p, c_char_p, c_void_p, c_void_p)),
    "interceptor_add_on_acknowledgement": (c_int, (c_void_p, c_char_p, c_void_p, c_void_p)),
    "new": (c_void_p, (c_int, c_void_p, c_char_p, c_size_t)),
    "destroy_flags": (None, (c_void_p, c_int)),
    "poll": (c_int, (c_void_p, c_int)),
    "poll_set_consumer": (c_int, (c_void_p,)),
    "err2name": (c_char_p, (c_int,)),
    "err2str": (c_char_p, (c_int,)),
    "fatal_error": (c_int, (c_void_p, c_char_p, c_size_t)),
    "error_code": (c_int, (c_void_p,)),
    "error_string": (c_char_p, (c_void_p,)),
    "error_is_retriable": (c_int, (c_void_p,)),
    "error_is_fatal": (c_int, (c_void_p,)),
    "error_txn_requires_abort": (c_int, (c_void_p,)),
    "error_destroy": (None, (c_void_p,)),
    "topic_partition_list_new": (_LIST, (c_int,)),
    "topic_partition_list_add": (POINTER(TopicPartition), (_LIST, c_char_p, c_int32)),
    "topic_partition_list_destroy": (None, (_LIST,)),
    "assign": (c_int, (c_void_p, _LIST)),
    "commit_queue": (c_int, (c_void_p, _LIST, c_void_p, COMMIT_CALLBACK, c_void_p)),
    "position": (c_int, (c_void_p, _LIST)),
    "query_watermark_offsets": (
        c_int,
        (c_void_p, c_char_p, c_int32, POINTER(c_int64), POINTER(c_int64), c_int),
    ),
    "get_watermark_offsets": (c_int, (c_void_p, c_char_p, c_int32, POINTER(c_int64), POINTER(c_int64))),
    "queue_get_consumer": (c_void_p, (c_void_p,)),
    "queue_destroy": (None, (c_void_p,)),
    "queue_io_event_enable": (None, (c_void_p, c_int, c_char_p, c_size_t)),
    "consume_batch_queue": (c_ssize_t, (c_void_p, c_int, c_void_p, c_size_t)),
    "message_destroy": (None, (c_void_p,)),
    "message_timestamp": (c_int64, (c_void_p, c_void_p)),
    "message_headers": (c_int, (c_void_p, c_void_p)),
    "header_get_all": (c_int, (c_void_p, c_size_t, c_void_p, c_void_p, c_void_p)),
    "headers_new": (c_void_p, (c_size_t,)),
    "headers_destroy": (None, (c_void_p,)),
    "header_add": (c_int, (c_void_p, c_void_p, c_ssize_t, c_void_p, c_ssize_t)),
    "topic_new": (c_void_p, (c_void_p, c_char_p, c_void_p)),
    "topic_name": (c_char_p, (c_void_p,)),
    "topic_destroy": (None, (c_void_p,)),
    "produceva": (c_void_p, (c_void_p, c_void_p, c_size_t)),
    "flush": (c_int, (c_void_p, c_int)),
    "purge": (c_int, (c_void_p, c_int)),
    "outq_len": (c_int, (c_void_p,)),
    "metadata": (c_int, (c_void_p, c_int, c_void_p, c_void_p, c_int)),
    "metadata_destroy": (None, (c_void_p,)),
    "init_transactions": (c_void_p, (c_void_p, c_int)),
    "begin_transaction": (c_void_p, (c_void_p,)),
    "commit_transaction": (c_void_p, (c_void_p, c_int)),
    "send_offsets_to_transaction": (c_void_p, (c_void_p, _LIST, c_void_p, c_int)),
    "consumer_group_metadata_new": (c_void_p, (c_char_p,)),
    "consumer_group_metadata_destroy": (None, (c_void_p,)),
}


class RdKafkaLibrary(CLibrary):
    """librdkafka's functions, named without their `rd_kafka_` prefix.

    Raises:
        OSError: It cannot be loaded.
        AttributeError: The library lacks a function.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "rd_kafka_", _SIGNATURES)

    def configuration(self, properties: Mapping[str, str]) -> int:
        """A new `rd_kafka_conf_t` (owned by the caller until `new` takes it)."""
        conf = int(self.conf_new())
        problem = ctypes.create_string_buffer(512)
        for name, value in properties.items():
            if self.conf_set(conf, name.encode(), str(value).encode(), problem, len(problem)) != 0:
                self.conf_destroy(conf)
                # Shows neither the value nor librdkafka's message, which repeats it: the value may be a secret.
                raise KafkaClientError(
                    f"client property {name!r} is unknown to librdkafka or its value is not allowed; see librdkafka's "
                    f"CONFIGURATION.md for names and ranges"
                )
        if properties.get("log_level") == QUIET["log_level"]:
            # Without this, librdkafka would still print fatal errors on standard error. They are raised, so no text is lost.
            self.conf_set_log_cb(conf, None)
        return conf

    def client(self, kind: int, conf: int) -> int:
        """A new client instance, which takes ownership of `conf`."""
        problem = ctypes.create_string_buffer(512)
        client = self.new(kind, conf, problem, len(problem))
        if not client:
            self.conf_destroy(conf)
            raise KafkaClientError(
                f"no Kafka client can be made with these client properties: {problem.value.decode(errors='replace')}"
            )
        return int(client)

    def failure(self, code: int, text: str | None = None, fatal: bool = False) -> ClientFailure:
        description = self.err2str(code).decode() if text is None else text
        return ClientFailure(code, self.err2name(code).decode(), description, fatal=fatal)

    def take_error(self, error: int) -> ClientFailure:
        """Describe an `rd_kafka_error_t` and free it."""
        code = self.error_code(error)
        failure = ClientFailure(
            code,
            self.err2name(code).decode(),
            self.error_string(error).decode(errors="replace"),
            bool(self.error_is_retriable(error)),
            bool(self.error_is_fatal(error)),
            bool(self.error_txn_requires_abort(error)),
        )
        self.error_destroy(error)
        return failure


def _candidates() -> Iterator[Path]:
    """The places of librdkafka in wheels: next to the package on Linux (auditwheel), inside it on macOS (delocate)."""
    package = Path(confluent_kafka.__file__).parent
    yield from sorted((package.parent / "confluent_kafka.libs").glob("librdkafka-*.so*"))
    yield from sorted((package / ".dylibs").glob("librdkafka*.dylib"))


@functools.lru_cache(maxsize=1)
def find_library() -> RdKafkaLibrary | None:
    """The library of the installed confluent-kafka; None if it cannot be used."""
    if os.environ.get(DISABLE_VARIABLE, "1") == "0":
        return None
    for path in _candidates():
        try:
            return RdKafkaLibrary(path)
        except (OSError, AttributeError):
            continue
    return None


def library() -> RdKafkaLibrary:
    """The library; only valid if `bulk_available()`."""
    found = find_library()
    if found is None:
        raise KafkaClientError(
            "librdkafka of the confluent-kafka wheel was not found; use the ordinary client (bulk=False)"
        )
    return found


def bulk_available() -> bool:
    """Whether the bulk reader and producer can be used (environment `STREAMS_KAFKA_BULK=0` switches them off)."""
    return find_library() is not None


def commit_offsets(properties: Mapping[str, str], offsets: Mapping[Place, tuple[int, str]]) -> list[ClientFailure]:
    """Commits offsets of the group in the properties of a consumer, which never joins it, with their metadata as they are.

    confluent-kafka 2.x counts the zero byte behind a text as part of the metadata. Kafka Streams in Java does not read such
    metadata ("Unsupported offset metadata found"): after `streams export-app` it knew no closed window, and gave all results on
    close again.

    Returns:
        The failures.

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
