"""A simulated Kafka and disk in memory, in which every failure can be injected at any point, and reproduced."""

from streams.testing.simulation.disk import SimulatedStores, SimulatedTable
from streams.testing.simulation.kafka import Crash, Fate, Hook, RequestEvent, SimulatedKafka
from streams.testing.simulation.log import Entry

__all__ = ["Crash", "Entry", "Fate", "Hook", "RequestEvent", "SimulatedKafka", "SimulatedStores", "SimulatedTable"]
