"""Errors of the streams package, for people: what happened, where, and what to do.

::

    StreamsError                     (state.errors: the one base of everything the project raises)
    ├── TopologyError                the topology is wrong: change the program
    ├── TopologyMismatchError        the state was written by a program of another structure: run that one, or begin anew
    ├── ResetUnfinishedError         a reset has deleted some of the application's things, and others are still there
    ├── ConfigError                  a setting is wrong: change the configuration
    ├── EnrichError                  a function of enrich() cannot be used as it is: no record's fault, no policy applies
    ├── RegistryError                the schema registry does not answer, or refuses: no record's fault, no policy applies
    ├── RangeTooLargeError           a micro-batch holds far more bytes than it was planned for
    ├── ValueNotPicklableError       a value cannot be handed on to the tasks: the program's fault, no policy applies
    ├── ApplicationFailedError       a streaming query ended with an error: its cause in one sentence
    └── RecordError                  one record is wrong: goes to the error policy (fail | skip | dlq)
        ├── SerdeError               its bytes or its value do not fit the serde
        └── TimestampError           it has no usable timestamp

The branches below ``state`` (Kafka client, stores, commit) are drawn in ``state.errors``.
"""

from __future__ import annotations

from state.errors import StreamsError

__all__ = [
    "ApplicationFailedError",
    "ConfigError",
    "EnrichError",
    "RangeTooLargeError",
    "RecordError",
    "RegistryError",
    "ResetUnfinishedError",
    "SerdeError",
    "StreamsError",
    "TimestampError",
    "TopologyError",
    "TopologyMismatchError",
    "ValueNotPicklableError",
]


class TopologyError(StreamsError):
    """The topology contradicts itself; raised while it is built, or as soon as a processor asks for what it was not given."""


class TopologyMismatchError(StreamsError):
    """What an application has kept was written by a program of another structure; nothing was written."""


class ResetUnfinishedError(StreamsError):
    """A reset was begun and has not come to its end: running it again finishes it."""


class ConfigError(StreamsError):
    """A setting is missing, unknown or out of its range."""


class ApplicationFailedError(StreamsError):
    """A streaming query ended with an error; nothing half-done is visible, and a restart goes on where it stopped."""


class EnrichError(StreamsError):
    """The function of an ``enrich`` cannot be made, or gives something else than one result for each value."""


class RegistryError(StreamsError):
    """The schema registry does not answer, or refuses: the step fails, whatever the error policies say."""


class RangeTooLargeError(StreamsError):
    """The records of a micro-batch are far larger than those it was planned by: it would not fit into memory."""


class ValueNotPicklableError(StreamsError):
    """A value cannot be pickled, so the step fails: skipping would lose all records that an operator makes such values of."""


class RecordError(StreamsError):
    """One record cannot be handled; the policy for its stage decides whether that stops the task."""


class SerdeError(RecordError):
    """A value cannot be turned into bytes, or bytes not into a value (Kafka's ``SerializationException``)."""


class TimestampError(RecordError):
    """A record has no valid timestamp, and its extractor is one that fails on that."""
