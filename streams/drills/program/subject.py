"""The default program as the subject of drills: every result is recomputed from the input."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from streams.config import StreamsConfig
from streams.drills.program.load import Load
from streams.drills.program.topology import INPUTS, OUTPUTS, PARTITIONS, build
from streams.drills.program.verify import wanted_results, wrong_outputs, wrong_state
from streams.drills.reader import Follower, Read
from streams.drills.subject import Place
from streams.drills.verify import wrong_commits
from streams.topology.topology import Topology


@dataclass
class OwnProgram:
    """The program of `topology.py`, or one that contains it, with a continuous flow of input.

    Attributes:
        target: The program, as `streams run` takes it.
        options: Options of `streams run` that it needs.
        build: Makes its topology; its stores are verified with it.
    """

    target: str = "streams.drills.program.topology:build"
    options: Sequence[str] = ("--max-records-per-trigger", "2000")
    build: Callable[[], Topology] = build

    @property
    def inputs(self) -> Mapping[str, int]:
        return dict.fromkeys(INPUTS, PARTITIONS)

    @property
    def outputs(self) -> Mapping[str, int]:
        """Pairs, closed windows and counts."""
        return dict.fromkeys(OUTPUTS, PARTITIONS)

    def load(self, servers: str, seed: int, begin_ms: int | None = None) -> Load:
        """The flow of orders and payments."""
        return Load(servers, seed, begin_ms)

    def complete(self, place: Place, readers: Mapping[str, Follower]) -> Callable[[], bool]:
        """Counts results: the input gives a known number in each topic."""
        total = {topic: results.total() for topic, results in wanted_results(place.servers).items()}
        return lambda: all(len(readers[topic].records) >= count for topic, count in total.items())

    def wrong(self, place: Place, seen: Mapping[str, Sequence[Read]]) -> list[str]:
        """Compares results with the model, and local stores with the model and their changelogs."""
        servers = place.servers
        config = StreamsConfig(
            application_id=place.application_id, bootstrap_servers=servers, base_dir=place.base_dir, tasks=PARTITIONS
        )
        wanted = wanted_results(servers)
        return [
            *wrong_outputs(servers, wanted, seen),
            *wrong_commits(servers, place.application_id),
            *wrong_state(self.build(), config, place.folder / "restored", wanted),
        ]
