"""The benchmark's peers: their descriptions, their environments, and the programs that users of Spark would write by hand."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.bench import Bench
from benchmarks.harness.peers import Peer
from benchmarks.nexmark.expected import EXPECTED
from benchmarks.nexmark.queries import QUERIES
from benchmarks.peers import environments, workers
from benchmarks.peers.spark import keyed, nexmark
from benchmarks.workloads.base import CLOSING_MS, PARTITIONS
from benchmarks.workloads.catalogue import WORKLOADS
from streams.broker import JarsMissingError
from streams.broker.jars import class_path
from tests.budget import seeds

PEERS = Path(environments.__file__).parent
DESCRIPTIONS = sorted(PEERS.glob("*/peer.json"))


@pytest.mark.parametrize("path", DESCRIPTIONS, ids=lambda path: path.parent.name)
def test_a_workload_is_either_supported_or_has_a_reason_against_it(path: Path) -> None:
    peer = json.loads(path.read_text())
    able, unable = set(peer["workloads"]), set(peer.get("not_supported", {}))
    assert not able & unable
    # A workload in neither is new: the harness says that there is no program.
    assert (able | unable) - {"*"} <= set(WORKLOADS)
    assert (path.parent / "README.md").is_file() or path.parent.name == "streams"


@pytest.mark.parametrize("path", sorted(PEERS.glob("*/requirements.txt")), ids=lambda path: path.parent.name)
def test_all_requirements_are_pinned(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    assert all("==" in line or line.count(":") == 2 for line in lines)


def test_an_environment_is_made_again_when_its_sources_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(environments, "HERE", tmp_path)
    monkeypatch.setattr(environments, "BUILD", tmp_path / "build")
    monkeypatch.setitem(environments._MAKERS, "quix", made.append)
    requirements = tmp_path / "quix" / "requirements.txt"
    requirements.parent.mkdir()
    requirements.write_text("quixstreams==1\n")
    environments.make("quix")
    environments.make("quix")
    assert made == ["quix"]
    requirements.write_text("quixstreams==2\n")
    assert not environments.is_made("quix")
    environments.make("quix")
    assert made == ["quix", "quix"]


def test_an_environment_that_could_not_be_made_is_not_taken_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(peer: str) -> None:
        raise OSError(f"no network for {peer}")

    monkeypatch.setattr(environments, "BUILD", tmp_path)
    monkeypatch.setitem(environments._MAKERS, "quix", fail)
    with pytest.raises(OSError, match="no network for quix"):
        environments.make("quix")
    assert not environments.is_made("quix")


def test_missing_jars_of_a_peer_are_fetched_by_make_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMS_CACHE_DIR", str(tmp_path))
    jars = environments.jars_of("kafka-streams")
    assert jars.modules[0] == ("org.apache.kafka", "kafka-streams", "4.3.1")
    with pytest.raises(JarsMissingError, match=r"kafka-streams 4\.3\.1 .*make peers"):
        class_path(jars)


def test_a_peer_whose_results_come_late_gets_closing_records() -> None:
    peer = Peer("late", "Spark's append mode", ("false",), closes=("sessions",))
    found = {}
    for name in ("sessions", "windows"):
        config: Any = None
        bench = Bench(WORKLOADS[name], "smoke", peer, config, config, config, {}, 0)
        found[name] = (bench.late_results, bench.closes)
    assert found == {"sessions": (True, True), "windows": (False, False)}


@pytest.mark.parametrize("query", QUERIES)
def test_the_java_peer_has_a_program_for_each_query(query: str) -> None:
    peer = json.loads((PEERS / "kafka-streams" / "peer.json").read_text())
    assert f"nexmark-suite-{query}" in peer["workloads"]
    assert f'case "{query}" ->' in (PEERS / "kafka-streams" / "src" / "Suite.java").read_text()


@pytest.mark.parametrize("query", QUERIES)
def test_the_java_peer_writes_the_fields_that_the_check_reads(query: str) -> None:
    read = {name for text in EXPECTED[query].found.values() for name in re.findall(r"'(?:\$\[\*\]\.)?(\w+)'", text)}
    assert read <= set(re.findall(r"\w+", (PEERS / "kafka-streams" / "src" / "Market.java").read_text()))


def test_sparks_own_operators_run_the_queries_that_their_peer_names() -> None:
    peer = json.loads((PEERS / "spark-native" / "peer.json").read_text())
    named = {name for name in peer["workloads"] if name.startswith("nexmark-suite-")}
    assert named == set(nexmark.WORKLOADS)
    unable = {name for name in peer["not_supported"] if name.startswith("nexmark-suite-")}
    assert named | unable == {f"nexmark-suite-{query}" for query in QUERIES}


def test_closing_records_of_the_suite_are_no_events_of_other_peers() -> None:
    for batch in WORKLOADS["nexmark-suite-q5"].closing(1, 1_000):
        assert {json.loads(value)["event_type"] for value in batch.values.to_pylist()} == {3}
        assert batch.partitions is not None
        assert sorted(batch.partitions.tolist()) == list(range(PARTITIONS))


def test_closing_records_of_bids_are_bids() -> None:
    for batch in WORKLOADS["nexmark-q5"].closing(1, 1_000):
        assert {len(json.loads(value)) for value in batch.values.to_pylist()} == {3}
        assert batch.timestamps.min() == 1_000 + CLOSING_MS


WORKER = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1]).parent
signal.signal(signal.SIGTERM, lambda *_: ((folder / f"stopped-{os.environ['WORKER']}").touch(), sys.exit(0)))
(folder / f"started-{os.environ['WORKER']}").touch()
if (folder / "fail").exists() and os.environ["WORKER"] == "1":
    while not (folder / "started-0").exists():
        time.sleep(0.01)
    sys.exit(7)
time.sleep(60)
"""


def start_workers(folder: Path) -> subprocess.Popen[bytes]:
    (folder / "program.py").write_text(WORKER)
    (folder / "run.json").write_text('{"threads": 2}')
    return subprocess.Popen([sys.executable, workers.__file__, str(folder / "program.py"), str(folder / "run.json")])


def test_a_python_peers_processes_all_get_the_request_to_end(tmp_path: Path) -> None:
    parent = start_workers(tmp_path)
    while not all((tmp_path / f"started-{number}").exists() for number in (0, 1)):
        time.sleep(0.01)
    parent.terminate()
    assert parent.wait(30) == 0
    assert (tmp_path / "stopped-0").exists()
    assert (tmp_path / "stopped-1").exists()


def test_a_python_peers_processes_end_with_the_one_that_fails(tmp_path: Path) -> None:
    (tmp_path / "fail").touch()
    assert start_workers(tmp_path).wait(30) == 7
    assert (tmp_path / "stopped-0").exists()


PARAMETERS = {"window_ms": 100, "gap_ms": 20, "difference_ms": 20, "before_ms": 30, "after_ms": 50}
LATE_MS = 40


def steps(seed: int) -> Iterator[list[tuple[int, float]]]:
    """Micro-batches of one key: times up to `LATE_MS` late, whole numbers as values."""
    randomness = random.Random(seed)
    now = 1_000
    for _ in range(randomness.randint(1, 8)):
        rows = []
        for _ in range(randomness.randint(0, 12)):
            now += randomness.choice([0, 1, 5, 20, 21, 90])
            rows.append((now - randomness.randint(0, LATE_MS), float(randomness.randint(1, 9))))
        yield sorted(rows)


def run(make: Callable[[Mapping[str, int]], keyed.Step], batches: list[list[tuple[Any, ...]]]) -> list[tuple[str, Any]]:
    """All results, with a watermark that follows the largest time of the batches before, and passes everything in the end."""
    step, state, watermark, largest = make(PARAMETERS), None, 0, 0
    found: list[tuple[str, Any]] = []
    for batch in [*batches, []]:
        answer = step("k", state, batch, watermark)
        state = answer.state
        found += [(key, None if value is None else json.loads(value)) for key, value in answer.results]
        largest = max([largest, *(row[0] for row in batch)])
        watermark = max(largest - LATE_MS - 1, 0)
    answer = step("k", state, [], largest + 10_000)
    assert answer.state is None
    return found + [(key, json.loads(value)) for key, value in answer.results if value is not None]


def table(found: list[tuple[str, Any]]) -> dict[str, Any]:
    last = dict(found)
    return {key: value for key, value in last.items() if value is not None}


def mean(values: list[float]) -> dict[str, Any]:
    return {"count": len(values), "mean": sum(values) / len(values)}


@pytest.mark.parametrize("seed", seeds(range(20)))
def test_sessions_by_hand_equal_sessions_of_all_records_at_once(seed: int) -> None:
    batches = list(steps(seed))
    groups: list[list[tuple[int, float]]] = []
    for row in sorted(row for batch in batches for row in batch):
        if groups and row[0] - groups[-1][-1][0] <= PARAMETERS["gap_ms"]:
            groups[-1].append(row)
        else:
            groups.append([row])
    expected = {f"k|{group[0][0]}|{group[-1][0]}": mean([value for _, value in group]) for group in groups}
    assert table(run(keyed.sessions, batches)) == expected


@pytest.mark.parametrize("seed", seeds(range(20)))
def test_sliding_windows_by_hand_equal_all_windows_of_all_records(seed: int) -> None:
    batches = list(steps(seed))
    rows = [row for batch in batches for row in batch]
    size = PARAMETERS["difference_ms"]
    expected = {}
    for at, _ in rows:
        for start in (at - size, at + 1):
            values = [value for ms, value in rows if start <= ms <= start + size]
            if values:
                expected[f"k|{start}"] = mean(values)
    assert table(run(keyed.sliding, batches)) == expected


@pytest.mark.parametrize("seed", seeds(range(20)))
def test_tumbling_windows_by_hand_equal_windows_of_all_records(seed: int) -> None:
    batches = list(steps(seed))
    windows: dict[int, list[float]] = {}
    for ms, value in (row for batch in batches for row in batch):
        windows.setdefault(ms // 100 * 100, []).append(value)
    expected = {f"k|{start}": {**mean(values), "t": 7} for start, values in windows.items()}
    assert table(run(keyed.tumbling, [[(*row, 7) for row in batch] for batch in batches])) == expected


@pytest.mark.parametrize("outer", [False, True])
@pytest.mark.parametrize("seed", seeds(range(20)))
def test_joins_by_hand_equal_the_join_of_all_records(seed: int, outer: bool) -> None:
    randomness = random.Random(seed)
    batches = [[(ms, randomness.choice(["left", "right"])) for ms, _ in batch] for batch in steps(seed)]
    numbers = iter(range(1_000))
    numbered = [[(*row, next(numbers)) for row in batch] for batch in batches]
    rows = [row for batch in numbered for row in batch]
    expected = []
    for at, n in ((ms, n) for ms, role, n in rows if role == "left"):
        near = [other for ms, role, other in rows if role == "right" and at - 30 <= ms <= at + 50]
        expected += [{"l": n, "r": other} for other in near or ([None] if outer else [])]
    found = [value for _, value in run(keyed.join_left if outer else keyed.join_inner, numbered)]
    assert sorted(found, key=str) == sorted(expected, key=str)
