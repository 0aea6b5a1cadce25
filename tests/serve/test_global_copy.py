"""The copy of the global tables: exactly the records of their topics as these are now, and nothing from a topic of before."""

import pytest

from state.stores.task_store import TaskStore
from state.tables.table import MemoryTable
from streams import Consumed, Materialized, StreamsBuilder, StringSerde
from streams.engine.graph.global_tables import GlobalTables, global_store_specs
from streams.engine.graph.settings import TaskSettings
from streams.serve.copies import GlobalCopy
from streams.testing.simulation import SimulatedKafka

DAY_MS = 24 * 60 * 60 * 1000
NOW_MS = 1_700_000_000_000


class Names:
    """A global table of names, whose topic has two partitions, and its copy."""

    def __init__(self):
        self.kafka, self.now_ms = SimulatedKafka({"names": 2}), NOW_MS
        builder = StreamsBuilder()
        builder.global_table("names", Consumed(StringSerde(), StringSerde()), Materialized("names"))
        builder.stream("in", Consumed(StringSerde(), StringSerde())).to("out")
        tables = list(builder.build().global_tables.values())
        store = TaskStore(MemoryTable(), global_store_specs(tables), MemoryTable())
        self.tables = GlobalTables(tables, store, TaskSettings("app"), lambda: self.now_ms)
        self.copy = GlobalCopy(self.kafka, self.tables, store, lambda: self.now_ms)

    def put(self, partition=0, **names):
        for key, name in names.items():
            value = None if name is None else name.encode()
            self.kafka.append("names", key.encode(), value, partition=partition)

    def rows(self):
        self.copy.bring_forward()
        with self.copy.reading() as view:
            return {key.decode(): value[8:].decode() for key, value in view.stores.rows("names")}


@pytest.fixture
def names():
    made = Names()
    yield made
    made.copy.close()


def test_what_is_new_is_read_and_only_that_makes_a_view(names):
    names.put(a="one", b="one")
    assert names.rows() == {"a": "one", "b": "one"}
    assert not names.copy.bring_forward()
    names.put(1, c="two")
    names.put(b=None)
    assert names.rows() == {"a": "one", "c": "two"}
    assert names.copy.version == 2


@pytest.mark.parametrize("new", [["x"], ["x", "y", "z", "u"]], ids=["shorter", "longer"])
def test_a_topic_that_was_made_again_is_another_table(names, new):
    """Also where the new log is longer than the old one, so that offsets alone say nothing."""
    names.put(a="old", b="old")
    names.rows()
    names.kafka.delete_topic("names")
    names.kafka.create_topic("names", 2)
    names.put(**dict.fromkeys(new, "new"))
    assert names.rows() == dict.fromkeys(new, "new")


def test_a_copy_whose_brokers_were_away_for_longer_than_tombstones_stay_is_read_again(names, monkeypatch):
    monkeypatch.setattr(names.kafka, "delete_retention_ms", lambda topic: DAY_MS)
    names.put(a="old", b="old")
    names.rows()
    names.put(a=None, c="new")
    names.kafka.log("names", 0).compact(tombstones=True)
    names.now_ms += DAY_MS
    assert names.rows() == {"b": "old", "c": "new"}


def test_records_that_were_deleted_unread_are_not_waited_for(names):
    names.put(a="old", b="old")
    names.rows()
    names.put(a="newer", b="newer", c="new")
    names.kafka.delete_records({("names", 0): 4})
    assert names.rows() == {"c": "new"}
