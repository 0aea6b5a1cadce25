"""All drills, by their numbers. There is a module for each thing that drills damage."""

from streams.drills.cases import broker, chaos, drivers, hosts, inputs, lake, machine, operation, state
from streams.drills.drill import KNOWN

__all__ = ["DRILLS", "broker", "chaos", "drivers", "hosts", "inputs", "lake", "machine", "operation", "state"]

DRILLS = tuple(KNOWN[number] for number in sorted(KNOWN))
