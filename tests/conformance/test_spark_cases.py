"""Some cases on real Spark and Kafka. The command runs the whole lists:

python -m tests.conformance --engine spark tests/conformance/spark_cases.txt
python -m tests.conformance --engine spark --mode strict tests/conformance/spark_strict_cases.txt
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from streams.operators.operator import Mode
from streams.topology.plan import build_plan
from tests.conformance.build import build
from tests.conformance.case import Case, CaseError, parse, read_cases
from tests.conformance.runner import judge
from tests.conformance.spark_cluster import Cluster
from tests.conformance.spark_engine import run_on
from tests.conformance.stretches import cut

FOLDER = Path(__file__).parent
LISTS: Mapping[Mode, Path] = {
    "compat": FOLDER / "spark_cases.txt",
    "strict": FOLDER / "spark_strict_cases.txt",
}
CHOSEN: list[tuple[Mode, str]] = [
    ("compat", "foreign_key_join/inner_null_foreign_key"),
    ("compat", "generated/stream_outer_join/141"),
    ("compat", "processor/punctuate_stream_time"),
    ("strict", "strict/restart/18 (generated/time_windows/146)"),
]
"""A circle of two queries, late records in several micro-batches, a clock, and a restart without local state."""
OTHERS: list[tuple[Mode, str]] = [
    ("compat", "cogroup/two_shared_keys"),
    ("compat", "session_windows/count_on_update"),
    ("compat", "stateless/word_count"),
    ("compat", "stream_global_table_join/left_regardless_of_match"),
    ("compat", "stream_table_join/grace_late"),
    ("compat", "suppress/before_join_left"),
    ("compat", "table_aggregate/subtract_then_add"),
    ("strict", "strict/window_update/194"),
]
"""The same engine on other operators: `test_live_cases` has one case of each family."""


def listed(mode: Mode) -> dict[str, Case]:
    return {case.name: case for case in read_cases([LISTS[mode]])}


@pytest.fixture(scope="module")
def cluster(broker, spark, tmp_path_factory) -> Cluster:
    return Cluster(broker.bootstrap_servers, spark, tmp_path_factory.mktemp("cases"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "name"), [*CHOSEN, *(pytest.param(*other, marks=pytest.mark.long) for other in OTHERS)]
)
def test_passes_on_spark(cluster: Cluster, mode: Mode, name: str) -> None:
    case = listed(mode)[name]
    problem = judge(case, run_on(cluster, case, mode), by_key=True)
    assert not problem, problem


def test_the_list_spans_all_families() -> None:
    names = listed("compat")
    assert len(names) >= 100
    files = (FOLDER / "cases").glob("*.jsonl")
    # Random tables are of operators whose families are in the list.
    left_out = ("strict", "random_tables")
    families = {
        case.name.rpartition("/")[0] for file in files if file.stem not in left_out for case in read_cases([file])
    }
    assert families == {name.rpartition("/")[0] for name in names}


@pytest.fixture
def case() -> Case:
    def record(topic: str, timestamp: int) -> dict[str, object]:
        return {"topic": topic, "key": "k", "value": 1, "timestamp": timestamp}

    return parse(
        {
            "name": "joined",
            "topology": [
                {"id": "l", "op": "stream", "topic": "left"},
                {"id": "r", "op": "stream", "topic": "right"},
                {
                    "id": "j",
                    "op": "join",
                    "left": "l",
                    "right": "r",
                    "before_ms": 10,
                    "after_ms": 10,
                    "grace_ms": 5,
                },
                {"id": "o", "op": "to", "in": "j", "topic": "out"},
            ],
            "records": [
                record("left", 1),
                record("right", 2),
                record("left", 2),
                record("right", 1),
                record("left", 9),
            ],
        }
    )


def stretches(case: Case, mode: Mode = "compat") -> list[list[list[int]]]:
    return cut(case, build_plan(build(case.topology), "app"), mode)


def test_a_stretch_ends_where_the_merge_would_give_another_order(case: Case) -> None:
    # At time 2 the left comes first; the right at 1 lies behind the right at 2 in its partition.
    assert stretches(case) == [[[0, 1], [2], [3, 4]]]


def test_marks_cut_too(case: Case) -> None:
    step, restart = {"step": True}, {"restart": True}
    marked = replace(case, records=[*case.records[:1], step, *case.records[1:2], restart, *case.records[3:]])
    assert stretches(marked) == [[[0], [2]], [[4, 5]]]
    assert stretches(replace(marked, batch=True)) == [[[0], [2]], [[4, 5]]]
    clock = replace(case, records=[{"advance_wall_clock_ms": 5}])
    with pytest.raises(CaseError, match="wall clock"):
        stretches(clock)
