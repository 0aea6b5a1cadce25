"""Errors of the embedded broker. Each message says what happened, where, and what to do.

BrokerError
├── JavaError          no Java, or one that is too old
├── JarsMissingError   the broker's jars are not in the cache: fetch them
├── JarFetchError      the jars could not be fetched
├── DataFolderError    the data folder does not fit what is asked of it
└── BrokerStartError   the broker ended, or was not ready in time (with the end of its log)
    └── PortInUseError its port is another process's
"""

from state.errors import StreamsError


class BrokerError(StreamsError):
    """The base class of all errors about the embedded broker."""


class JavaError(BrokerError):
    """Java is missing or older than the broker needs: install it, or set JAVA_HOME."""


class JarsMissingError(BrokerError):
    """The broker's jars are not in the cache folder: run `streams broker fetch`."""


class JarFetchError(BrokerError):
    """Fetching the broker's jars failed, usually for lack of a network, or because Java does not know the proxy."""


class DataFolderError(BrokerError):
    """The data folder belongs to another kind of cluster, is in use, or has no cluster."""


class BrokerStartError(BrokerError):
    """The broker ended while starting, or was not ready in time."""


class PortInUseError(BrokerStartError):
    """Another process uses the broker's port: end it, or give another port."""
