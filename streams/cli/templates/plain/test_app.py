"""The topology, tested without Kafka and without Spark."""

from app import build

from streams.testing import TopologyTestDriver


def test_visits_are_counted_by_the_minute() -> None:
    with TopologyTestDriver(build()) as driver:
        visits = driver.create_input_topic("visits")
        counts = driver.create_output_topic("visits-by-minute")
        visits.pipe_input("/home", {"user": "ann"}, timestamp=1_000)
        visits.pipe_input("/home", {"user": "bob"}, timestamp=59_000)
        visits.pipe_input("/home", {"user": "ann"}, timestamp=60_000)
        assert counts.read_key_values_to_list()[-2:] == [
            ("/home", {"minute": 0, "visits": 2}),
            ("/home", {"minute": 60_000, "visits": 1}),
        ]
