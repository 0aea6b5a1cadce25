"""A stored row that cannot be read (any more) costs the records of its own key, and no others."""

import pytest

from state.errors import StateCorruptedError
from streams import Materialized, StreamsBuilder, TimeWindows, agg
from streams.errors import RecordFailedError, SerdeError
from streams.operators.stores.codec import Codec
from streams.operators.stores.key_value import CachedRow, TypedTimestampedKeyValueStore
from streams.testing import TopologyTestDriver

KEYS = "abcdefg"
BAD = ["c", "f"]


def sums(windowed):
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key()
    if windowed:
        grouped = grouped.windowed_by(TimeWindows.of_size_with_no_grace(100).advance_by(50))
    grouped.aggregate(n=agg.sum("x"), c=agg.count(), materialized=Materialized(name="s")).to_stream().to("out")
    return builder.build()


@pytest.fixture
def damage(monkeypatch):
    """From the call on, the stored rows of two keys cannot be read."""
    read = CachedRow.__init__

    def fail(self, key, start, stored, codec):
        if stored is not None and key.decode() in BAD:
            raise SerdeError(f"the row of {key!r} is no JSON")
        read(self, key, start, stored, codec)

    def fail_together(self, stored):
        raise SerdeError("one of the rows is no JSON")

    def damage():
        monkeypatch.setattr(CachedRow, "__init__", fail)
        monkeypatch.setattr(Codec, "old_values", fail_together)

    return damage


def send(driver):
    topic = driver.create_input_topic("in")
    with driver.batch():
        for number, key in enumerate(KEYS * 2):
            topic.pipe_input(key, {"x": 1}, 110 + number)


@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.parametrize("policy", ["fail", "skip", "dlq"])
def test_only_its_own_records_are_dropped(policy, windowed, damage):
    with TopologyTestDriver(sums(windowed), processing=policy, dead_letter_topic="dead") as driver:
        send(driver)
        damage()
        out = driver.create_output_topic("out")
        out.read_values_to_list()
        if policy == "fail":
            # The first record of the first damaged key; the error names it and not only the end of the step.
            with pytest.raises(RecordFailedError, match="record at in-0 offset 16, key b'c', made an operator fail"):
                send(driver)
            return
        send(driver)
        windows = 2 if windowed else 1
        values = [value for value in out.read_values_to_list() if value is not None]
        assert values == [{"n": 4, "c": 4}] * (len(KEYS) - len(BAD)) * windows
        assert driver.dropped("processing") == 2 * len(BAD), "each record once, however many windows it is in"
        letters = driver.create_output_topic("dead").read_records_to_list()
        assert [(r.key, r.value) for r in letters] == (
            [(k.encode(), b'{"x":1}') for k in BAD * 2] if policy == "dlq" else []
        )


def test_a_damaged_store_is_no_records_fault(monkeypatch):
    def broken(self, keys):
        raise StateCorruptedError("/x", "bad block")

    with TopologyTestDriver(sums(False), processing="skip") as driver:
        monkeypatch.setattr(TypedTimestampedKeyValueStore, "stored_column", broken)
        with pytest.raises(StateCorruptedError):
            send(driver)
