"""What can go wrong around the embedded broker. Each message says what happened, where, and what to do.

BrokerError
├── JavaError          no Java, or one that is too old
├── JarsMissingError   the broker's jars are not in the cache: fetch them
├── JarFetchError      the jars could not be fetched
├── DataFolderError    the data folder does not fit what is asked of it
└── BrokerStartError   the broker ended, or was not ready in time (carries the tail of its log)
"""

from state.errors import StreamsError


class BrokerError(StreamsError):
    """Base of all errors about the embedded broker."""


class JavaError(BrokerError):
    """Java is missing or older than the broker needs: install it, or set JAVA_HOME."""


class JarsMissingError(BrokerError):
    """The broker's jars are not in the cache folder: run `streams broker fetch`."""


class JarFetchError(BrokerError):
    """Fetching the broker's jars failed: mostly no network, or a proxy Java does not know of."""


class DataFolderError(BrokerError):
    """The data folder belongs to another kind of cluster, is in use, or holds no cluster at all."""


class BrokerStartError(BrokerError):
    """The broker ended while starting, or was not ready in time."""
