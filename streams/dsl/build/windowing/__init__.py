"""What the kinds of windows mean for an aggregation: one class for each kind, one file for each family.

A new kind of windows is a class in `streams.model` (what it is) and a class here (`kind.WindowKind`: its parameters in names and
in the topology hash, its store, the serde of its keys, its operator), registered with `kind_of`.
"""

from streams.dsl.build.windowing.windowing import NO_WINDOWS, Windowing, windowing_of

__all__ = ["NO_WINDOWS", "Windowing", "windowing_of"]
