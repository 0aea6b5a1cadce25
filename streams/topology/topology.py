"""`Topology`: a finished graph for users, who can view it as text, as a chart, and as a drawing in a notebook."""

from __future__ import annotations

from dataclasses import dataclass

from streams.errors import TopologyError
from streams.topology.describe import mermaid, short_text, svg, topology_text
from streams.topology.graph import Graph
from streams.topology.ways import explained
from streams.wording import described


@dataclass(frozen=True, repr=False)
class Topology(Graph):
    """The result of a builder. View it with `describe()`, `explain()` and `mermaid()`, or as a drawing in a notebook."""

    def describe(self) -> str:
        """Returns the topology as text, in the format of Kafka Streams' `TopologyDescription`, for which there are viewers."""
        return topology_text(self)

    def explain(self) -> str:
        """Returns how each operator processes records, fastest first (on columns, together, one by one), and why it is not faster.

        The name is that of Spark's `DataFrame.explain`. Raises `TopologyError` if the topology cannot be planned.
        """
        return explained(self)

    def mermaid(self) -> str:
        """Returns the topology as a Mermaid flow chart, which GitHub draws: heads, tasks, stores and topics."""
        return mermaid(self)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """What a notebook can show: a drawing, which needs no network or script, the flow chart, or one line of text."""
        drawing = svg(self)
        return {
            "text/html": f'<div style="overflow-x:auto">{drawing}</div>',
            "image/svg+xml": drawing,
            "text/vnd.mermaid": self.mermaid(),
            "text/plain": repr(self),
        }

    def __repr__(self) -> str:
        """One line with the topics and stores of each sub-topology."""
        return f"Topology({short_text(self)})"


def check_topology(given: object, taker: str) -> None:
    """Checks that a finished topology was given, not a builder or the function that makes one."""
    if isinstance(given, Topology):
        return
    if callable(getattr(given, "build", None)):
        instead = f": write {taker}(builder.build(), ...)"
    elif callable(given):
        instead = f": call it, as in {taker}({getattr(given, '__name__', 'build')}(), ...)"
    else:
        instead = ""
    raise TopologyError(f"{taker} takes a Topology, not {described(given)}{instead}.")
