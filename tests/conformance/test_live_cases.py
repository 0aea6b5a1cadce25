"""Cases in live execution on real Spark and Kafka: one of each family in one application. `make oracle-live` runs all of them."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from streams.operators.operator import Mode
from tests.conformance.case import Case, read_cases
from tests.conformance.live_cases import groups_of, why_not
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
    """A new key before a stateful operator, a clock that the test sets, bytes that count topics' names, input among results."""
    reasons: Counter[str] = Counter()
    for mode, file in ((STRICT if file.stem == STRICT else "compat", file) for file in sorted(CASES.glob("*.jsonl"))):
        reasons.update(filter(None, (why_not(case, mode) for case in read_cases([file]))))  # type: ignore[arg-type]
    named: Mapping[str, str] = {
        "a function makes": "new key",
        "not for Spark: its wall clock": "clock",
        "not for Spark: it writes": "echo",
        "a buffer": "bytes",
    }
    found = Counter(
        {short: count for why, count in reasons.items() for begin, short in named.items() if why.startswith(begin)}
    )
    assert sum(found.values()) == sum(reasons.values()), reasons
    assert found == {"new key": 34, "clock": 5, "bytes": 8, "echo": 1}
