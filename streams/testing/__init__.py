"""Tests topologies without Spark and Kafka, with the code that runs in production."""

from streams.metrics.application import NodeMetrics
from streams.testing.driver import TopologyTestDriver
from streams.testing.mock_context import Forwarded, MockProcessorContext
from streams.testing.sinks import check_sink
from streams.testing.topics import OutputRecord, TestInputTopic, TestOutputTopic, TestRecord

__all__ = [
    "Forwarded",
    "MockProcessorContext",
    "NodeMetrics",
    "OutputRecord",
    "TestInputTopic",
    "TestOutputTopic",
    "TestRecord",
    "TopologyTestDriver",
    "check_sink",
]
