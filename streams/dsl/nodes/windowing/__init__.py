"""How each kind of windows is aggregated: one class for each kind, one file for each family.

A new kind of windows is a class in `streams.model` (its definition) and a class here (`kind.WindowKind`: the parameters in names
and in the topology hash, the store, the serde of the keys, the operator), registered with `kind_of`.
"""

from streams.dsl.nodes.windowing.windowing import NO_WINDOWS, Windowing, windowing_of

__all__ = ["NO_WINDOWS", "Windowing", "windowing_of"]
