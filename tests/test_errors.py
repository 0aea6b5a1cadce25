"""The tree of errors: one place to look, a kind for each, and every error survives the way between processes."""

import importlib
import pickle
import pkgutil

import pytest

import state
import streams
from state.errors import (
    ClientFailure,
    ErrorKind,
    FencedError,
    KafkaClientError,
    OffsetsLostError,
    StateLockedError,
    StreamsError,
)
from streams.errors import (
    ApplicationFailedError,
    ConfigError,
    RecordFailedError,
    RegistryError,
    SerdeError,
    TopologyError,
    more_about,
)

HOMES = ("state.errors", "streams.errors")


def all_errors() -> list[type[StreamsError]]:
    """Every error class of the engine, wherever it is defined."""
    for package in (state, streams):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.startswith("streams.engine.spark.startup"):
                importlib.import_module(module.name)
    found: list[type[StreamsError]] = []
    waiting = [StreamsError]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.startswith(("state", "streams")):
            found.append(kind)
    return sorted(found, key=lambda error: error.__name__)


ERRORS = all_errors()


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_an_error_is_defined_in_a_module_of_errors(error):
    assert error.__module__.startswith(HOMES), f"{error.__module__}.{error.__name__}"


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_an_error_has_a_kind(error):
    assert isinstance(error.kind, ErrorKind)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_every_error_is_in_a_documented_tree(error):
    drawn = "".join(importlib.import_module(home).__doc__ or "" for home in HOMES)
    assert f" {error.__name__}" in drawn or f"{error.__name__}\n" in drawn


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TopologyError("x"), ErrorKind.CONFIGURATION),
        (ConfigError("x"), ErrorKind.CONFIGURATION),
        (SerdeError("x"), ErrorKind.DATA),
        (OffsetsLostError("t", 0, 5, earliest=7, latest=9), ErrorKind.DATA),
        (RegistryError("x"), ErrorKind.TRANSIENT),
        (StateLockedError("/state", 5.0, "locked"), ErrorKind.TRANSIENT),
        (KafkaClientError("x"), ErrorKind.CONFIGURATION),
        (KafkaClientError("x", ClientFailure(-195, "_TRANSPORT", "broker down")), ErrorKind.TRANSIENT),
        (FencedError("x", ClientFailure(-144, "_FENCED", "x", retriable=True, fatal=True)), ErrorKind.CONFIGURATION),
    ],
)
def test_the_kind_says_who_can_act_and_survives_pickling(error, kind):
    assert error.kind is kind
    assert pickle.loads(pickle.dumps(error)).kind is kind


def test_a_failed_record_survives_pickling_with_its_place():
    error = RecordFailedError("m", stage="processing", node="n", topic="t", partition=1, offset=2, key=b"k")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.stage, copy.topic, copy.partition, copy.offset, copy.key) == (
        "m",
        "processing",
        "t",
        1,
        2,
        b"k",
    )


@pytest.mark.parametrize(
    ("error", "entry"),
    [
        (ConfigError("x"), "ConfigError"),
        (ApplicationFailedError("x", cause="OffsetsLostError"), "OffsetsLostError"),
        (ApplicationFailedError("x", cause="TopologyError"), "TopologyError"),
        (ApplicationFailedError("x", cause="ZeroDivisionError"), "ApplicationFailedError"),
    ],
)
def test_an_error_leads_to_its_entry_or_that_of_its_cause(error, entry):
    assert more_about(error) == f"streams errors {entry}"
