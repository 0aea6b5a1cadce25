"""The topology, tested without Kafka, Spark and Delta Lake."""

from app import build

from streams.testing import TopologyTestDriver


def test_each_visit_is_a_row_and_each_hour_of_a_page_has_one() -> None:
    with TopologyTestDriver(build()) as driver:
        visits = driver.create_input_topic("visits")
        visits.pipe_input("/home", {"user": "ann"}, timestamp=1_000)
        visits.pipe_input("/home", {"user": "bob"}, timestamp=2_000)
        assert [row["user"] for row in driver.table_rows("lake/visits")] == ["ann", "bob"]
        assert [row["visits"] for row in driver.table_rows("lake/visits_by_hour")] == [2]
