"""Commands that are accepted or rejected against the state, and answered: reserve seats of a flight, as long as there are any.

Run it:   streams run topologies.commands:build --application-id seats
Serve it: streams serve topologies.commands:build --application-id seats
Ask it:   POST /v1/topics/seat-commands?await=answers&await_key=ID with {"key": FLIGHT, "value": {"id": ID, "seats": 2}}
"""

from typing import Any

from streams import JsonSerde, Processor, ProcessorContext, Record, Stores, StringSerde, Topology, TopologyBuilder

SEATS = 3
"""Seats of a flight."""

Command = dict[str, Any]


class Reserve(Processor[str, Command, str, Command]):
    """Reserves seats if they are free, and answers either way. A command that comes twice gets its first answer."""

    def init(self, context: ProcessorContext[str, Command]) -> None:
        """Looks up the stores."""
        self.context = context
        self.reserved = context.get_state_store("reserved")
        self.answers = context.get_state_store("answers")

    def process(self, record: Record[str, Command]) -> None:
        """Compares with what is left, and writes the answer under the command's id."""
        command, flight = record.value, record.key
        if self.answers.get(command["id"]) is not None:
            return
        taken = self.reserved.get(flight) or 0
        left = SEATS - taken
        if command["seats"] > left:
            answer = {"accepted": False, "reason": f"{flight} has {left} seats left, not {command['seats']}"}
        else:
            self.reserved.put(flight, taken + command["seats"])
            answer = {"accepted": True, "left": left - command["seats"]}
        self.answers.put(command["id"], answer)
        self.context.forward(record.with_value({**command, **answer}))


def build() -> Topology:
    """Reads `seat-commands` by flight, and writes all answers to `seat-answers`, too."""
    topology = TopologyBuilder()
    topology.add_source("commands", "seat-commands")
    topology.add_processor("reserve", Reserve, "commands")
    topology.add_state_store(Stores.key_value_store("reserved", StringSerde(), JsonSerde()), "reserve")
    topology.add_state_store(Stores.key_value_store("answers", StringSerde(), JsonSerde()), "reserve")
    topology.add_sink("answered", "seat-answers", parents="reserve")
    return topology.build()
