"""The harness with a small peer of the tests' own: what counts, and what is said about runs that do not."""

from __future__ import annotations

import itertools
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast
from unittest import mock

import pytest

from benchmarks.harness import bench
from benchmarks.harness.bench import Bench
from benchmarks.harness.cluster import Cluster
from benchmarks.harness.peers import Peer
from benchmarks.harness.probe import MachineProbe
from benchmarks.harness.result import Run
from benchmarks.harness.run import Loaded, Options, repeat
from benchmarks.verify.compare import Verdict
from benchmarks.workloads.catalogue import WORKLOADS

PEER = Path(__file__).parent / "counting_peer.py"


def counting_peer(*how: str) -> Peer:
    command = (sys.executable, str(PEER), "{config}", *how)
    return Peer("counting", "a peer of the tests", command, "at-least-once", workloads=("windows",))


@pytest.fixture
def loaded(cluster: Cluster, tmp_path: Path) -> Loaded:
    loaded = Loaded(cluster, WORKLOADS["windows"], Options("smoke"), tmp_path)
    assert loaded.load() == 40_000
    return loaded


@pytest.mark.kafka
def test_a_peer_is_measured_as_a_process_and_verified(loaded: Loaded) -> None:
    run = loaded.run(counting_peer())
    assert run.outcome == "verified", run.why
    assert 0 < run.records <= 40_000
    assert run.cpu_us_per_record == pytest.approx(sum(run.cpu_us_by_process.values()), abs=0.01)
    assert run.cpu_us_per_record > 0
    assert run.figures["peak_pss_mb"] >= run.figures["peak_pss_mb_driver"] > 0
    assert run.figures["probe_us"] > 0
    assert run.figures["stood_still_s"] >= 0
    assert run.first_result_s is not None
    assert run.output_records >= 400


@pytest.mark.kafka
def test_a_run_with_wrong_output_does_not_count(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_PATIENCE_S", 0.1)
    run = loaded.run(counting_peer("wrong"))
    assert run.outcome == "wrong"
    assert not run.counts
    assert "count: expected" in run.why[0]


def verdict_with(outputs: list[int], verdicts: list[Verdict], monkeypatch: pytest.MonkeyPatch) -> Verdict:
    """The last verdict of a run whose output has these ends, one each time that it is looked at."""
    monkeypatch.setattr(bench, "_ROUND_S", 0.0)
    monkeypatch.setattr(bench, "_PATIENCE_S", 0.3)
    ends = itertools.chain(outputs, itertools.repeat(outputs[-1]))
    monitor, workload, given = mock.Mock(), mock.Mock(closes=False), mock.Mock()
    given.internal_topics.return_value = []
    type(monitor.last).outputs = mock.PropertyMock(side_effect=ends)
    workload.verify.side_effect = verdicts
    return Bench(workload, "smoke", counting_peer(), given, given, given, {}, 0).verified(monitor)


def test_a_refusal_is_not_the_last_word_while_results_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sub-topology behind a repartition topic may still be at work when the input is consumed."""
    verdicts = [Verdict(["missing: 1 in all"]), Verdict()]
    assert verdict_with([5, 5, 5, 6], verdicts, monkeypatch).accepted


def test_a_refusal_is_the_last_word_if_no_more_results_come(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not verdict_with([5], [Verdict(["missing: 1 in all"])], monkeypatch).accepted


@pytest.mark.parametrize(
    ("internal", "looks"),
    [(["a-n-changelog"], 0), (["a-k-repartition", "a-n-changelog", "a-0-commits"], 4)],
    ids=["one sub-topology", "two"],
)
def test_a_system_is_waited_for_until_sub_topologies_behind_others_are_at_rest(
    internal: list[str], looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "_AT_REST_S", 0.0)
    cluster = mock.Mock()
    cluster.internal_topics.return_value = internal
    written: list[list[str]] = []

    def ends(topics: Iterable[str]) -> int:
        written.append(list(topics))
        return min(len(written), 3)

    cluster.end_offsets.side_effect = ends
    system = mock.Mock()
    Bench(mock.Mock(), "smoke", counting_peer(), mock.Mock(), cluster, system, {}, 0).wait(mock.Mock())
    # Until it is the same twice; markers of commits do not count, because they also come without anything to do.
    assert written == [["a-k-repartition", "a-n-changelog"]] * looks


def test_a_borrowed_input_is_neither_loaded_nor_deleted(tmp_path: Path) -> None:
    cluster = mock.Mock()
    cluster.topics.return_value = [
        "suite.events.1",
        "windows.out.2",
        "windows-streams-2-counts-changelog",
        "joins.out.3",
    ]
    shared = Loaded(cluster, WORKLOADS["windows"].varied(name="suite"), Options("smoke"), tmp_path)
    shared._inputs = {"events": "suite.events.1"}
    other = shared.borrowed_by(WORKLOADS["windows"])
    other.load()
    cluster.create.assert_not_called()
    other.delete()
    assert list(cluster.delete.call_args.args[0]) == ["windows.out.2", "windows-streams-2-counts-changelog"]
    shared.delete()
    assert list(cluster.delete.call_args.args[0]) == ["suite.events.1"]


@pytest.mark.kafka
def test_a_peer_may_say_that_it_cannot(loaded: Loaded) -> None:
    run = loaded.run(counting_peer("unable"))
    assert (run.outcome, run.why) == ("not supported", ["it has no windows"])


@pytest.mark.kafka
def test_a_peer_that_ends_by_itself_has_failed(loaded: Loaded) -> None:
    run = loaded.run(counting_peer("dying"))
    assert run.outcome == "failed"
    assert any("broken on purpose" in line for line in run.why)


@pytest.mark.kafka
def test_a_workload_that_a_peer_does_not_list_is_not_supported(loaded: Loaded) -> None:
    peer = Peer("small", "a peer without programs", ("false",), not_supported={"windows": "it has only tables"})
    run = loaded.run(peer)
    assert (run.outcome, run.why) == ("not supported", ["it has only tables"])


@pytest.mark.kafka
def test_a_run_does_not_find_the_probes_of_the_one_before(cluster: Cluster, tmp_path: Path) -> None:
    loaded = Loaded(cluster, WORKLOADS["table-fill"], Options("smoke"), tmp_path)
    loaded.load()
    first, second = (loaded.config(counting_peer()).topics for _ in range(2))
    assert first["rows"] == second["rows"]
    assert first["probes"] != second["probes"]


class Disturbed:
    """A loaded workload with given runs."""

    def __init__(self, size: str, *runs: Run) -> None:
        self.options = Options(size)
        self.left = list(runs)

    def run(self, _: Peer) -> Run:
        return self.left.pop(0)


def a_run_of(stood_still_s: float, outcome: str = "verified", seconds: float = 20.0) -> Run:
    return Run(outcome, seconds=seconds, figures={"stood_still_s": stood_still_s})


@pytest.mark.parametrize(
    ("size", "runs", "chosen", "left"),
    [
        ("small", [(3.0,), (0.0,), (0.0,)], 1, 1),
        ("small", [(3.0,), (2.0,), (4.0,), (5.0,), (0.0,)], 1, 1),
        ("small", [(3.0,), (0.0, "wrong"), (0.0,)], 1, 1),  # never hidden by a better one
        ("small", [(3.0, "verified", 400.0), (0.0,)], 0, 1),  # too little of a long run to matter
        ("smoke", [(3.0,), (0.0,)], 0, 1),
    ],
)
def test_a_run_is_repeated_while_the_machine_stands_still(
    size: str, runs: list[tuple[Any, ...]], chosen: int, left: int
) -> None:
    made = [a_run_of(*one) for one in runs]
    loaded = Disturbed(size, *made)
    ((_, done),) = repeat(cast(Loaded, loaded), [cast(Peer, "peer")], 1)
    assert done is made[chosen]
    assert len(loaded.left) == left


# The probe beside a run: it notices when the machine stands still.


def test_a_machine_that_stands_still_is_noticed() -> None:
    with MachineProbe() as probe:
        time.sleep(0.5)  # the process that sleeps has begun
        probe._sleeper.send_signal(signal.SIGSTOP)
        time.sleep(1.2)
        probe._sleeper.send_signal(signal.SIGCONT)
        time.sleep(0.2)
    assert probe.stood_still_s >= 0.8
    assert probe.mean_us > 0
