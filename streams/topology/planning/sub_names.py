"""The name of a sub-topology, which identifies everything persistent: commits topic, transactional ids, checkpoint, local state.

A sub-topology is named after the smallest name of its topics, so the order of the program does not matter. If commits exist under
the name of another of its topics, the sub-topology keeps that name, since the state was made under it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from streams.errors import TopologyMismatchError
from streams.topology.graph import SourceNode
from streams.topology.pattern_name import fit_for_topic


def possible_names(sources: Iterable[SourceNode]) -> list[str]:
    """The names that a sub-topology may have, the usual one first.

    Args:
        sources: Its sources, their topics without the application's id.
    """
    return sorted({fit_for_topic(topic) for source in sources for topic in source.lasting_topics})


def sub_topology_name(sources: Iterable[SourceNode], known: Iterable[str]) -> str:
    """The name of a sub-topology.

    Args:
        sources: Its sources, their topics without the application's id.
        known: Names of sub-topologies that have run before, the preferred ones first.
    """
    names = possible_names(sources)
    return next((name for name in known if name in names), names[0])


def check_one_name(sources: Iterable[SourceNode], known: Collection[str]) -> None:
    """Checks that a sub-topology has run under at most one name.

    Raises:
        TopologyMismatchError: There are several names: of sub-topologies that are now one, or of two starts of the program.
    """
    names = possible_names(sources)
    found = [name for name in names if name in known]
    if len(found) > 1:
        raise TopologyMismatchError(
            f"the topics {', '.join(names)} are read by one sub-topology, but there are commits of {len(found)} that are called "
            f"after them: {', '.join(found)}, and no topology.json in the checkpoint's folder that tells which is this one's. "
            f"Nothing was written. Put the checkpoint's folder back, or run the program that they were written by, or give this "
            f"one an application id of its own. If all but one are left over from an old program, delete their commits topics."
        )
