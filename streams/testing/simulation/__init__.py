"""A Kafka and a disk in memory, in which everything that can go wrong can be made to, at any place and the same way again."""

from streams.testing.simulation.disk import SimulatedTable
from streams.testing.simulation.events import Crash, Event, Fate, Hook
from streams.testing.simulation.kafka import SimulatedKafka
from streams.testing.simulation.log import Entry
from streams.testing.simulation.stores import SimulatedStores

__all__ = ["Crash", "Entry", "Event", "Fate", "Hook", "SimulatedKafka", "SimulatedStores", "SimulatedTable"]
