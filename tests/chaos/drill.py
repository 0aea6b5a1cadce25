"""One chaos run: continuous input, random blows, a wait for results after each, and a verification at the end."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from state.kafka.admin import KafkaAdmin
from state.kafka.topics import TopicSpec
from streams.config import StreamsConfig
from tests.chaos.application import APPLICATION_ID, Supervised, grows
from tests.chaos.blows import AWAY_S, WEIGHTS, Blow, Target
from tests.chaos.load import Load
from tests.chaos.topology import INPUTS, OUTPUTS, PARTITIONS
from tests.chaos.verify import wanted_results, wrong_commits, wrong_outputs, wrong_state
from tests.faults.proxy import proxied_broker
from tests.spark.processes import Follower

STUCK_S = 180.0
"""Seconds without results after the end of a fault that count as a failure."""
START_S = 240.0
DRAIN_S = 300.0
AT_ONCE = 0.25
"""The probability that the next blow comes before the application has recovered from the last."""
_ENOUGH = 5
"""The number of failures after which the run is given up."""
_POLL_S = 0.1
SKIPPED_MARKERS = "while trying to send transaction markers"
"""The log line of a broker that does not write the control records of a decided transaction."""


class Verdict(IntEnum):
    """The outcome of a run; the number is the exit code."""

    FINE = 0
    FAILED = 1
    SPOILED = 3
    """A known defect of the broker has spoiled the run; another seed is needed."""


@dataclass
class Drill:
    """A run.

    Args:
        seed: The seed of the blows and the input.
        seconds: How long blows occur.
        folder: The folder for broker, state, checkpoint and logs.
        console: Where to print.
        blows: The blows; default: random, by their weights.
        longest_away_s: The longest outage of the broker or the network, seconds.

    Attributes:
        failures: Descriptions of the failures.
        spoiled: The broker's own defect that makes the run inconclusive; None: none.
    """

    seed: int
    seconds: float
    folder: Path
    console: Console
    blows: Sequence[Blow] = tuple(WEIGHTS)
    longest_away_s: float = AWAY_S
    failures: list[str] = field(default_factory=list)
    spoiled: str | None = None
    _began: float = field(default_factory=time.monotonic)

    def run(self) -> bool:
        """Runs the drill; True if everything was correct at the end."""
        with ExitStack() as stack:
            broker, proxy = stack.enter_context(proxied_broker(self.folder / "broker"))
            servers = proxy.bootstrap_servers
            with KafkaAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
                admin.create_topics(
                    TopicSpec(name, PARTITIONS, {"retention.ms": "-1"}, 1) for name in (*INPUTS, *OUTPUTS)
                )
            application = Supervised(servers, self.folder)
            stack.callback(application.close)
            load = Load(servers, self.seed)
            readers = {topic: Follower(servers, topic, PARTITIONS) for topic in OUTPUTS}
            for reader in readers.values():
                reader.start()
                stack.callback(reader.finish)
            load.start()
            stack.callback(load.finish)
            application.start()
            target = Target(application, broker, proxy, random.Random(self.seed), self.folder, self.longest_away_s)
            self._strike(target, lambda: sum(len(reader.records) for reader in readers.values()))
            if not self.spoiled:
                self._settle(application, load, readers, servers)
        return not self.failures and not self.spoiled

    def say(self, text: str) -> None:
        """Prints a line with the time since the start."""
        self.console.print(f"{time.monotonic() - self._began:7.1f} s  {text}", highlight=False, markup=False)

    def _strike(self, target: Target, results: Callable[[], int]) -> None:
        self._await_results(target.application, grows(results), START_S, "the first start")
        weights = [WEIGHTS[blow] for blow in self.blows]
        end, number = time.monotonic() + self.seconds, 0
        with self._bar() as bar:
            shown = bar.add_task("blows", total=self.seconds)
            while time.monotonic() < end and len(self.failures) < _ENOUGH:
                number += 1
                (blow,) = target.drawn.choices(self.blows, weights)
                self.say(f"{number}. {blow.__name__} …")
                what = blow(target)
                self.say(f"{number}. {what}")
                self._look_for_skipped_markers()
                if self.spoiled:
                    return
                if target.drawn.random() >= AT_ONCE:
                    self._await_results(target.application, grows(results), STUCK_S, f"blow {number}, {what}")
                bar.update(shown, completed=self.seconds - max(0.0, end - time.monotonic()))
                target.pause(2)
            self._await_results(target.application, grows(results), STUCK_S, "the last blow")

    def _await_results(self, application: Supervised, there: Callable[[], bool], timeout_s: float, after: str) -> None:
        """Waits for new results; an application that has ended by itself is restarted, which counts as a failure."""
        began = time.monotonic()
        while not there():
            if application.revive():
                self._look_for_skipped_markers()
                self._fail(f"after {after}: the application ended by itself: {application.died[-1]}")
            if time.monotonic() - began > timeout_s:
                self._look_for_skipped_markers()
                self._fail(f"after {after}: no results within {timeout_s:g} s")
                return
            time.sleep(_POLL_S)
        application.may_end = False
        self.say(f"   results after {time.monotonic() - began:.1f} s")

    def _settle(self, application: Supervised, load: Load, readers: dict[str, Follower], servers: str) -> None:
        """Ends the input, waits until everything is processed, and compares the results."""
        load.finish()
        self.failures += load.failures
        wanted = wanted_results(servers)
        total = {topic: results.total() for topic, results in wanted.items()}
        self.say(f"{load.sent} records were sent; waiting for {sum(total.values())} results")
        began = time.monotonic()
        while any(len(readers[topic].records) < count for topic, count in total.items()):
            if application.revive():
                self._fail(f"the application ended by itself: {application.died[-1]}")
            if time.monotonic() - began > DRAIN_S:
                self._fail(f"not all results were there within {DRAIN_S:g} s")
                break
            time.sleep(_POLL_S)
        if code := application.stop():
            self._fail(f"exit code {code} after SIGTERM")
        self.say(f"started {application.starts} times; comparing")
        seen = {topic: reader.finish() for topic, reader in readers.items()}
        config = StreamsConfig(
            application_id=APPLICATION_ID, bootstrap_servers=servers, base_dir=self.folder / "var", tasks=PARTITIONS
        )
        for wrong in (
            *wrong_outputs(servers, wanted, seen),
            *wrong_commits(servers, APPLICATION_ID),
            *wrong_state(config, self.folder / "restored", wanted),
        ):
            self._fail(wrong)

    def _look_for_skipped_markers(self) -> None:
        """Checks whether the broker has left a transaction hanging (KAFKA-20734), which no client can end.

        A coordinator that restarts with a committed transaction looks for the leaders of its partitions. Partitions without a
        leader, as right after a restart, are treated as deleted by Kafka 4.3, which never writes their control records.
        """
        log = self.folder / "broker" / "node-1" / "server.log"
        found = [line for line in log.read_text(errors="replace").splitlines() if SKIPPED_MARKERS in line]
        if found:
            self.spoiled = found[0]

    def _fail(self, what: str) -> None:
        self.failures.append(what)
        self.say(f"FAILED: {what}")

    def _bar(self) -> Progress:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        return Progress(*columns, console=self.console, disable=not self.console.is_terminal, transient=True)


def run_drill(seed: int, seconds: float, folder: Path, console: Console, keep: bool = False, **options: Any) -> Verdict:
    """Runs a drill in a folder of its own, which is deleted afterwards unless the drill failed.

    Args:
        seed: The seed of the blows.
        seconds: How long blows occur.
        folder: A new folder.
        console: Where to print.
        keep: Whether to leave the folder in any case.
        options: Further arguments of `Drill`.
    """
    drill = Drill(seed, seconds, folder, console, **options)
    drill.say(f"seed {seed}, {seconds:g} s of blows, in {folder}")
    try:
        fine = drill.run()
    except BaseException:
        drill.say(f"seed {seed} was not carried through; logs and state are in {folder}")
        raise
    if fine and not keep:
        shutil.rmtree(folder, ignore_errors=True)
    if fine:
        drill.say("all results exactly once, commits without gaps, state as the model and the changelogs have it")
        return Verdict.FINE
    if drill.spoiled:
        drill.say(f"the broker has skipped control records (KAFKA-20734), so this run proves nothing: {drill.spoiled}")
        return Verdict.SPOILED
    drill.say(f"{len(drill.failures)} failures with seed {seed}; logs and state are in {folder}")
    return Verdict.FAILED
