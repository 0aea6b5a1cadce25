"""Byte formats against Kafka Streams' (reference 2.12), written out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.stores import codec

TIMES = st.integers(0, 2**63 - 1)


def test_golden_bytes():
    assert codec.window_key(b"k", 1, 2) == b"k" + bytes.fromhex("000000000000000100000002")
    assert codec.session_key(b"k", 2, 1) == b"k" + bytes.fromhex("00000000000000020000000000000001")
    assert codec.timestamped(b"v", 1_700_000_000_000) == bytes.fromhex("0000018bcfe56800") + b"v"
    assert codec.pack_segment_prefix(3, 5) == bytes.fromhex("00030000000000000005")


@given(st.binary(max_size=20), TIMES, st.integers(0, 2**31 - 1))
def test_window_key_round_trip(key, start, sequence):
    data = codec.window_key(key, start, sequence)
    assert codec.split_window_key(data) == (key, start, sequence)
    assert codec.window_start(data) == start


@given(st.binary(max_size=20), TIMES, TIMES)
def test_session_key_round_trip(key, end, start):
    data = codec.session_key(key, end, start)
    assert codec.split_session_key(data) == (key, end, start)
    assert codec.session_end(data) == end


@given(st.binary(max_size=20), TIMES)
def test_timestamped_round_trip(value, timestamp):
    assert codec.split_timestamped(codec.timestamped(value, timestamp)) == (value, timestamp)


@pytest.mark.parametrize(
    ("prefix", "end"),
    [(b"a", b"b"), (b"a\xff", b"b"), (b"\xff\xff", None), (b"", None), (b"\x00", b"\x01"), (b"\x01\xff\xff", b"\x02")],
)
def test_prefix_end(prefix, end):
    assert codec.prefix_end(prefix) == end


@given(st.binary(max_size=4), st.binary(max_size=4), TIMES)
def test_upper_with_suffix_covers_all_lower_keys(key, other, start):
    bound = codec.upper_with_suffix(key, codec.pack_window_suffix(codec.MAX_TIME, codec.MAX_SEQUENCE))
    if other <= key:
        assert codec.window_key(other, start) <= bound
