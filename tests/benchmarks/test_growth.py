"""The series of growth: each point is a workload that differs from its own in one thing."""

import pytest

from benchmarks.growth import SERIES, points
from benchmarks.workloads.catalogue import WORKLOADS


@pytest.mark.parametrize("name", SERIES)
def test_a_point_changes_the_input_or_a_setting_but_not_the_workload(name: str) -> None:
    found = list(points(name, None))
    assert [point.value for point in found] == list(SERIES[name].values)
    for point in found:
        assert point.workload.name == SERIES[name].workload
        assert point.workload is not WORKLOADS[point.workload.name] or point.settings


def test_larger_values_can_be_left_out() -> None:
    assert [point.value for point in points("keys", 10_000)] == [1_000, 10_000]


def test_a_varied_workload_leaves_its_own_as_it_is() -> None:
    few = WORKLOADS["counts"].varied(keys=10, sizes={"smoke": 500})
    assert {len(batch) for batch in few.batches("smoke")} == {500}
    assert WORKLOADS["counts"].keys == 100_000


def test_a_skewed_key_is_more_frequent_than_the_others() -> None:
    skewed = WORKLOADS["counts"].varied(keys=1_000, skew=1.5, sizes={"smoke": 10_000})
    counts = skewed.events("smoke").columns()["key"]
    most = max((counts == key).sum() for key in set(counts.tolist()))
    assert most > 2_000
