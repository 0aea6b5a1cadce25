"""Cases in live execution on real Spark and Kafka: one of each family in one application. `make oracle-live` runs all of them."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from streams.errors import StreamsError
from streams.operators.operator import Mode
from streams.topology.plan import with_added_topics
from streams.topology.planning.repartitions import added_topics
from tests.conformance.build import build
from tests.conformance.case import Case, read_cases
from tests.conformance.driver_engine import run_on_driver
from tests.conformance.live_cases import groups_of, why_not
from tests.conformance.runner import judge
from tests.conformance.spark_cluster import Cluster
from tests.conformance.spark_engine import run_together

CASES = Path(__file__).parent / "cases"
STRICT = "strict"
MOST_RECORDS = 16
"""A case with more takes long: some have to be written record by record, each when the one before is processed."""


def all_cases(mode: Mode) -> list[Case]:
    files = [file for file in sorted(CASES.glob("*.jsonl")) if (file.stem == STRICT) is (mode == STRICT)]
    return [case for case in read_cases(files) if why_not(case, mode) is None]


def family(case: Case) -> str:
    """Strict cases are named by a rule and a number, or by the case that is restarted."""
    return case.name.split("/")[1] if case.name.startswith(f"{STRICT}/") else case.name.rpartition("/")[0]


def one_of_each(cases: list[Case]) -> list[Case]:
    """The longest case of each family that is not too long: it does the most."""
    longest: dict[str, Case] = {}
    for case in sorted(cases, key=lambda case: (len(case.records) <= MOST_RECORDS, len(case.records))):
        longest[family(case)] = case
    return list(longest.values())


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["compat", pytest.param(STRICT, marks=pytest.mark.long)])
def test_one_case_of_each_family_passes_live(broker, spark, tmp_path_factory, mode: Mode) -> None:
    cluster = Cluster(broker.bootstrap_servers, spark, tmp_path_factory.mktemp("cases"))
    chosen = one_of_each([case for case in all_cases(mode) if case.error is None])
    problems = {}
    for together in groups_of(chosen, len(chosen)):
        problems |= {case.name: problem for case, problem in run_together(cluster, together, mode) if problem}
    assert not problems, "\n\n".join(f"{name}\n{found}" for name, found in problems.items())


@pytest.mark.slow
def test_few_cases_cannot_run_live() -> None:
    """A clock that the test sets, bytes that count topics' names, input among results."""
    reasons: Counter[str] = Counter()
    for mode, file in ((STRICT if file.stem == STRICT else "compat", file) for file in sorted(CASES.glob("*.jsonl"))):
        reasons.update(filter(None, (why_not(case, mode) for case in read_cases([file]))))  # type: ignore[arg-type]
    named: Mapping[str, str] = {
        "not for Spark: its wall clock": "clock",
        "not for Spark: it writes": "echo",
        "a buffer": "bytes",
    }
    found = Counter(
        {short: count for why, count in reasons.items() for begin, short in named.items() if why.startswith(begin)}
    )
    assert sum(found.values()) == sum(reasons.values()), reasons
    assert found == {"clock": 5, "bytes": 8, "echo": 1}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["compat", STRICT])
def test_repartition_topics_that_the_plan_adds_change_no_result(mode: Mode) -> None:
    """The cases of real Kafka Streams with new keys in front of something with state, on the test driver."""
    problems, played = {}, 0
    for file in sorted(CASES.glob("*.jsonl")):
        for case in read_cases([file]) if (file.stem == STRICT) is (mode == STRICT) else ():
            if case.error is not None or not _gets_topics(case):
                continue
            played += 1
            if problem := judge(case, run_on_driver(case, mode, "live"), by_key=True):
                problems[case.name] = problem
    assert not problems, "\n\n".join(f"{name}\n{found}" for name, found in problems.items())
    assert played


def _gets_topics(case: Case) -> bool:
    try:
        return bool(added_topics(with_added_topics(build(case.topology, case.config.get("optimize", False)), {})))
    except StreamsError:
        return False
