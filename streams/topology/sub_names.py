"""The name of a sub-topology, by which all that lasts is found again: commits topic, transactional ids, checkpoint, local state.

It is the smallest of the names of its topics, so the order of the program has no part in it. Where commits are known under the
name of another of its topics, that one stays its name: the state was made under it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from streams.errors import TopologyMismatchError
from streams.topology.graph import SourceNode
from streams.topology.pattern_name import fit_for_topic


def possible_names(sources: Iterable[SourceNode]) -> list[str]:
    """The names that a sub-topology may have, the usual one first.

    Args:
        sources: its sources, their topics without the application's id.
    """
    return sorted({fit_for_topic(topic) for source in sources for topic in source.lasting_topics})


def sub_topology_name(sources: Iterable[SourceNode], known: Collection[str]) -> str:
    """The name of a sub-topology.

    Args:
        sources: its sources, their topics without the application's id.
        known: names of sub-topologies that have run before.

    Raises:
        TopologyMismatchError: it is known by several names, so what reads them together now was apart once.
    """
    names = possible_names(sources)
    found = [name for name in names if name in known]
    if len(found) > 1:
        raise TopologyMismatchError(
            f"the topics {', '.join(names)} are read by one sub-topology, but there are commits of {len(found)} that are called "
            f"after them: {', '.join(found)}. They were apart once, or the program was started under two names: which positions "
            f"and stores hold, nobody can tell. Run the program that they were written by, or give this one an application id "
            f"of its own. If one of them is left over from an old program, delete its commits topic and its folder in the "
            f"checkpoint: the other one then goes on."
        )
    return found[0] if found else names[0]
