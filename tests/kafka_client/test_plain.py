"""What needs no broker: headers, partitioner, configurations, errors, the shared library."""

import ctypes
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numba
import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from state import errors, numba_functions
from state.errors import FencedError
from state.headers import decode_headers, encode_headers
from state.kafka.admin import note_of
from state.kafka.config import consumer_config, producer_config
from state.kafka.key_hash import murmur2, partition_for_key
from state.kafka.librdkafka import bulk_available
from state.kafka.partitioner import partition_for_keys
from state.kafka.transport import OrdinaryTransport

HEADERS = st.lists(st.tuples(st.text(), st.none() | st.binary()))


@given(HEADERS)
def test_headers_survive_encoding(headers: list[tuple[str, bytes | None]]) -> None:
    assert decode_headers(encode_headers(headers)) == headers


def test_no_headers_and_damaged_headers() -> None:
    assert decode_headers(None) == decode_headers(b"") == []
    whole = encode_headers([("name", b"value")])
    for size in range(1, len(whole)):
        with pytest.raises(ValueError, match="cut off"):
            decode_headers(whole[:size])
    with pytest.raises(ValueError, match="null name"):
        decode_headers(b"\xff\xff\xff\xff" * 2)


# From Kafka's own UtilsTest.testMurmur2.
JAVA_VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "expected"), JAVA_VECTORS.items())
def test_murmur2_equals_javas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected


@given(st.lists(st.none() | st.binary(max_size=40), max_size=30), st.integers(1, 1000), st.integers(0, 5))
def test_compiled_partitioner_equals_its_twin(keys: list[bytes | None], partitions: int, skipped: int) -> None:
    expected = [partition_for_key(key, partitions) for key in keys]
    for kind in (pa.binary(), pa.large_binary()):
        column = pa.array(keys, kind)
        assert partition_for_keys(column, partitions).tolist() == expected
        assert partition_for_keys(column.slice(skipped), partitions).tolist() == expected[skipped:]


def test_partitioner_at_its_edges() -> None:
    assert partition_for_keys(pa.nulls(2), 3).tolist() == [-1, -1]
    assert partition_for_keys(pa.array([], pa.binary()), 3).dtype == np.int32
    with pytest.raises(ValueError, match="at least one partition"):
        partition_for_keys(pa.nulls(1), 0)


def test_what_exactly_once_needs_cannot_be_overridden() -> None:
    users = {"isolation.level": "read_uncommitted", "enable.auto.commit": "true", "linger.ms": "7", "group.id": "mine"}
    consumer = consumer_config(users, 1 << 20)
    assert (consumer["isolation.level"], consumer["enable.auto.commit"]) == ("read_committed", "false")
    assert (consumer["group.id"], consumer["queued.max.messages.kbytes"]) == ("mine", "1024")
    producer = producer_config({"transactional.id": "other", "acks": "1", **users}, "app-0", 5_000)
    assert (producer["transactional.id"], producer["acks"], producer["linger.ms"]) == ("app-0", "all", "7")
    assert producer["transaction.timeout.ms"] == "5000"


FAILURE = errors.ClientFailure(-144, "_FENCED", "fenced", fatal=True)


@pytest.mark.parametrize(
    "error",
    [
        errors.KafkaClientError("message", FAILURE),
        errors.TopicNotFoundError("t", 1, FAILURE),
        errors.TopicRecreatedError("t", "old", "new"),
        errors.TopicMismatchError("t", 1, 2),
        errors.OffsetsLostError("t", 0, 5, earliest=7, latest=9),
        errors.ReadTimeoutError("t", 0, 5, 9, seconds=1.5, failure=FAILURE),
        errors.FencedError("message", FAILURE, topic="t", partition=1, key=b"k", offset=3),
        errors.ProducerStateError("message"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_pickling(error: errors.StreamsError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), vars(copy)) == (str(error), vars(error))


def test_bulk_is_available_with_the_installed_wheel_and_can_be_switched_off() -> None:
    assert bulk_available()
    code = "from state.kafka.librdkafka import bulk_available; print(bulk_available())"
    told = subprocess.run(
        [sys.executable, "-c", code], env={"STREAMS_KAFKA_BULK": "0"}, capture_output=True, text=True, check=True
    )
    assert told.stdout == "False\n"


def test_kernels_are_cached_elsewhere_when_the_package_is_read_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda *_: False)
    numba_functions._use_writable_cache()
    (folder,) = tmp_path.iterdir()
    assert str(folder) == numba.config.CACHE_DIR
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    numba_functions._use_writable_cache()
    assert str(folder) != numba.config.CACHE_DIR, "code is never loaded from a folder that others can write"


def raise_as_confluent_kafka_does(error: KafkaError) -> None:
    """Raises a `KafkaError`, which is no exception: only C code can do that."""
    for taken in (KafkaError, error):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(taken))
    ctypes.pythonapi.PyErr_Restore(ctypes.py_object(KafkaError), ctypes.py_object(error), None)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python itself makes an exception of it")
@pytest.mark.parametrize("call", ["flush", "poll"])
def test_a_fatal_error_that_is_no_exception_gets_its_name(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    transport = OrdinaryTransport({}, {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}, "app-in-0")
    fenced = KafkaError(KafkaError._FENCED, "fenced by a newer producer", fatal=True)
    client = SimpleNamespace(**{call: lambda wait_s: raise_as_confluent_kafka_does(fenced)})
    monkeypatch.setattr(OrdinaryTransport, "_client", client)
    with pytest.raises(FencedError):
        transport.flush(1) if call == "flush" else transport._serve(0)


class Noted:
    """A committed offset as confluent-kafka gives it: its metadata read beyond its end, up to the next zero byte."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def metadata(self) -> str:
        return self._data.decode()


def test_metadata_of_an_offset_that_other_bytes_follow() -> None:
    assert note_of(Noted(b"")) == ""
    assert note_of(Noted(b'{"a": 1}\x8c\xff')).startswith('{"a": 1}')
