"""Commands that are accepted or rejected against the object that they change: compare and set, in the low-level API.

Shows: `TopologyBuilder` with named nodes, children by name, a store that the processor alone writes.
"""

from typing import Any

from streams import JsonSerde, Processor, ProcessorContext, Record, Stores, StringSerde, Topology, TopologyBuilder

Event = dict[str, Any]


class Validate(Processor[str, Event, str, Event]):
    """Accepts a command if it expects the version that the object has."""

    def init(self, context: ProcessorContext[str, Event]) -> None:
        """Looks up the store."""
        self.context = context
        self.objects = context.get_state_store("objects")

    def process(self, record: Record[str, Event]) -> None:
        """Compares the version, and sets the object if it fits."""
        stored = self.objects.get(record.key) or {"version": 0}
        if record.value["expects"] != stored["version"]:
            self.context.forward(record.with_value({**record.value, "found": stored["version"]}), "rejected")
            return
        accepted = {"version": stored["version"] + 1, "value": record.value["value"]}
        self.objects.put(record.key, accepted)
        self.context.forward(record.with_value(accepted), "accepted")


def build() -> Topology:
    """Reads `commands` by object and writes `accepted-commands` and `rejected-commands`."""
    topology = TopologyBuilder()
    topology.add_source("commands", "object-commands")
    topology.add_processor("validate", Validate, "commands")
    topology.add_state_store(Stores.key_value_store("objects", StringSerde(), JsonSerde()), "validate")
    topology.add_sink("accepted", "accepted-commands", parents="validate")
    topology.add_sink("rejected", "rejected-commands", parents="validate")
    return topology.build()
