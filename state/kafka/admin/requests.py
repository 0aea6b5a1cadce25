"""`AdminRequests`: one admin client, and what a request that fails raises.

A client that got no answer is replaced before the next request. librdkafka (2.10 to 2.16) forgets the brokers that an answer about
the cluster does not name; where it names none, as for a moment when the only broker has missed its heartbeats, the client has
nobody left to ask and never answers again (librdkafka's issue 5301).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import Future
from typing import TypeVar

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, TopicDescription

from state.errors import ClientFailure, KafkaClientError
from state.kafka.config import ClientConfig, admin_config
from state.kafka.error_mapping import NO_ANSWER, TOPIC_NOT_FOUND, failure_of, request_error, timed_out

POLL_S = 0.05
"""The pause before a request is repeated, seconds."""
_Result = TypeVar("_Result")
# Requests time out by themselves; this only guards against an answer that never comes.
_GRACE_S = 5.0
# librdkafka forgets the leaders of topics after `metadata.max.age.ms`, 15 minutes by default.
_LEADERS_KNOWN_S = 300.0


class AdminRequests:
    """The requests of a `KafkaAdmin`, and its client until `close`.

    Attributes:
        config: The user's client properties.
        timeout_s: Seconds that one request may take.
    """

    def __init__(self, config: ClientConfig, timeout_s: float) -> None:
        self.config = config
        self.timeout_s = timeout_s
        self._admin: AdminClient | None = AdminClient(admin_config(config))
        self._unanswered = False
        self._leaders_of: set[str] = set()
        self._leaders_since = 0.0

    @property
    def client(self) -> AdminClient:
        """The client. Raises `KafkaClientError` once it is closed."""
        if self._admin is None:
            raise KafkaClientError("this admin client is closed; open a new one")
        if self._unanswered:
            self._admin, self._unanswered = AdminClient(admin_config(self.config)), False
            self._leaders_of = set()
        return self._admin

    def result(self, future: Future[_Result], what: str) -> _Result:
        """Wait for the result for one item of a request; a failure is raised as a named error."""
        try:
            return future.result(self.timeout_s + _GRACE_S)
        except KafkaException as exception:
            failure = self._failure(exception)
            raise request_error(what, "check the brokers and the rights", failure) from exception
        except TimeoutError as timeout:
            self.replace_client()
            message = f"{what} took longer than {self.timeout_s:g} s; check the brokers"
            raise KafkaClientError(message, timed_out("no answer")) from timeout

    def _failure(self, exception: KafkaException) -> ClientFailure:
        failure = failure_of(exception.args[0])
        if failure.code in NO_ANSWER:
            self.replace_client()
        return failure

    def replace_client(self) -> None:
        """Use another client for the next request, because this one got no answer."""
        self._unanswered = True

    def descriptions(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """Descriptions of the existing ones of these topics."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        futures = self.client.describe_topics(TopicCollection(wanted), request_timeout=self.timeout_s)
        found = {}
        for name, future in futures.items():
            try:
                found[name] = self.result(future, f"describing topic {name!r}")
            except KafkaClientError as error:
                if error.code not in TOPIC_NOT_FOUND:
                    raise
        return found

    def partition_counts(self) -> dict[str, int]:
        """Every topic's number of partitions."""
        return self._counts(self.client)

    def _counts(self, client: AdminClient) -> dict[str, int]:
        try:
            topics = client.list_topics(timeout=self.timeout_s).topics
        except KafkaException as exception:
            failure = self._failure(exception)
            raise request_error("listing topics", "check the brokers", failure) from exception
        return {name: len(topic.partitions) for name, topic in topics.items()}

    def client_knowing(self, topics: Iterable[str]) -> AdminClient:
        """The client, with the leaders of topics learned, for a request that it distributes among leaders.

        Where librdkafka 2.16 has to ask for leaders within such a request (`ListOffsets`, `DeleteRecords`), the caller's thread
        goes on to use the request after it has subscribed it to new metadata. Metadata that arrives just then, as it does
        right after a client was made, complete and free the request, and the process dies of SIGSEGV
        (`rd_kafka_topic_partition_list_query_leaders_async`). With leaders that are known nothing is asked.
        """
        client = self.client  # a replaced client knows no leaders, so it is renewed before they are looked for
        if time.monotonic() - self._leaders_since > _LEADERS_KNOWN_S:
            self._leaders_of = set()
        if not self._leaders_of.issuperset(topics):
            self._leaders_since = time.monotonic()
            self._leaders_of = set(self._counts(client))
        return client

    def close(self) -> None:
        """Release the client; may be called again."""
        self._admin = None
