"""What is told of a failed query: one sentence out of Spark's pages."""

import pytest

from streams.spark.queries import did_not_start, readable

SPARK = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to stage failure: Lost task 0.3:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "task_function.py", line 3, in _run
ValueError: 10 // 0

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "nodes.py", line 3, in receive
{error}

	at org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:9)
java.lang.RuntimeException: something of Java's
=== Streaming Query ===
Identifier: app/source [id = 1]"""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "streams.runtime.handlers.RecordFailedError: record at in-0 offset 1",
            "RecordFailedError: record at in-0 offset 1",
        ),
        ("ZeroDivisionError: division by zero", "ZeroDivisionError: division by zero"),
        ("pyspark.errors.PySparkRuntimeError: [X] y", "ValueError: 10 // 0"),
    ],
)
def test_the_innermost_error_of_python_is_reported(line: str, told: str) -> None:
    assert str(readable(Exception(SPARK.format(error=line)))) == told


def test_sparks_own_words_without_the_plan() -> None:
    text = "No space left on device\n=== Streaming Query ===\nIdentifier: app/source"
    assert str(readable(Exception(text))) == "No space left on device"
    text = "Job aborted\n\tat a.b.C\nCaused by: java.io.IOException: No space left on device\n\tat a.b.C"
    assert str(readable(Exception(text))) == "IOException: No space left on device"


def test_a_failure_of_java_within_a_call_from_java() -> None:
    text = (
        "An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):\n"
        '  File "a.py", line 1, in call\n'
        "py4j.protocol.Py4JJavaError: An error occurred while calling o123.collectToPython.\n"
        ": org.apache.spark.SparkException: Job aborted due to stage failure: cannot rollback the ResultStage\n\tat a.b.C"
    )
    assert (
        str(readable(Exception(text)))
        == "SparkException: Job aborted due to stage failure: cannot rollback the ResultStage"
    )


def test_a_sentence_of_several_lines_is_told_to_its_end() -> None:
    text = "[DELTA_X] Error getting change data as it was not\nrecorded for version [3].\n\n\tat a.b.C\n=== Streaming Query ==="
    assert (
        str(readable(Exception(text))) == "[DELTA_X] Error getting change data as it was not recorded for version [3]."
    )
    assert str(readable(Exception("Job aborted\n\tat a.b.C\n\tat a.b.D"))) == "Job aborted"


def test_a_worker_that_died() -> None:
    text = (
        "SparkException: x\nCaused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed): "
    )
    told = str(readable(Exception(text + "Fatal Python error: Segmentation fault\n\tat a.b.C")))
    assert "Fatal Python error: Segmentation fault" in told
    assert "\n" not in told


def test_a_process_that_did_not_start() -> None:
    failure = Exception("Python worker failed to connect back.\n=== Streaming Query ===")
    assert did_not_start(failure)
    assert not did_not_start(None)
    assert "start again" in str(readable(failure))
