"""Records the archive of the embedded broker's classes (`class_archive.py`), by the start, a little use and the end of a broker.

The archive belongs to the jars, so it is stored with them in the cache folder and deleted with them.
"""

from __future__ import annotations

import logging
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streams.broker.class_archive import record
from streams.broker.cluster import ClusterRecord
from streams.broker.embedded import EmbeddedBroker
from streams.broker.node import DEFAULT_JVM_OPTIONS, class_archive
from streams.errors import StreamsError

log = logging.getLogger(__name__)

_END_S = 120.0
"""How long Java may take to write the archive, seconds."""
_TOPIC = "classes"
_REQUEST_S = 30.0


def record_classes() -> None:
    """Records the archive, unless there is one for this Java; if that fails, a broker only takes longer to start."""
    try:
        record(class_archive(), _run)
    except (StreamsError, KafkaException, OSError) as error:
        log.debug("the broker's classes could not be recorded: %s", error)


def _run(options: Sequence[str]) -> bool:
    with tempfile.TemporaryDirectory(prefix="streams-classes-") as folder:
        broker = EmbeddedBroker(Path(folder), jvm_options=(*DEFAULT_JVM_OPTIONS, *options), die_with_parent=True)
        with broker:
            _use(broker.bootstrap_servers)
            cluster = ClusterRecord.load(Path(folder))
            assert cluster is not None
            process = cluster.nodes[0].process
            assert process is not None
            process.send(signal.SIGTERM)
            return process.wait(_END_S)


def _use(servers: str) -> None:
    """One transaction, read by a consumer group: what every application does."""
    client = {"bootstrap.servers": servers, "log_level": "0"}
    admin = AdminClient(client)
    admin.create_topics([NewTopic(_TOPIC, 1, 1)])[_TOPIC].result(_REQUEST_S)
    producer = Producer({**client, "transactional.id": _TOPIC})
    producer.init_transactions(_REQUEST_S)
    producer.begin_transaction()
    producer.produce(_TOPIC, b"record")
    producer.commit_transaction(_REQUEST_S)
    consumer = Consumer({**client, "group.id": _TOPIC, "auto.offset.reset": "earliest"})
    consumer.subscribe([_TOPIC])
    if consumer.poll(_REQUEST_S) is not None:
        consumer.commit(asynchronous=False)
    consumer.close()
