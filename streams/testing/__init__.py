"""Testing of topologies without Spark and Kafka, by the code that runs in production."""

from streams.testing.driver import TopologyTestDriver
from streams.testing.mock_context import Forwarded, MockProcessorContext
from streams.testing.topics import OutputRecord, TestInputTopic, TestOutputTopic

__all__ = [
    "Forwarded",
    "MockProcessorContext",
    "OutputRecord",
    "TestInputTopic",
    "TestOutputTopic",
    "TopologyTestDriver",
]
