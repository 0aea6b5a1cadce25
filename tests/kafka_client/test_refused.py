"""What is told of requests that brokers refuse for want of a right. (The client library is a fake.)"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from state.errors import AuthorizationError
from state.kafka import connection as rights
from state.kafka import consumers as group_member

REQUEST = "Request Request(processor=0, session=org.apache.kafka.network.Session@17, buffer=HeapByteBuffer[pos=290])"


class Refused:
    """A client whose every request is refused."""

    def __init__(self, *_: object) -> None: ...

    def subscribe(self, *_: object, **__: object) -> None: ...

    def poll(self, timeout_s: float) -> Refused:
        return self

    def error(self) -> KafkaError:
        return KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "FindCoordinator response error")

    def create_acls(self, wanted: Sequence[object], **_: object) -> dict[object, Future[Any]]:
        answer: Future[Any] = Future()
        failure = KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, REQUEST)
        answer.set_exception(KafkaException(failure))
        return dict.fromkeys(wanted, answer)


def test_a_group_that_may_not_be_joined_is_a_missing_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_member, "Consumer", Refused)
    with pytest.raises(AuthorizationError, match=r"joining the consumer group 'shop-replicas' failed.*--operate"):
        group_member.GroupMember({}, "shop-replicas", ["shop-orders-commits"]).poll(0)


def test_who_may_not_grant_rights_is_told_so_without_the_brokers_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "AdminClient", Refused)
    with pytest.raises(AuthorizationError) as raised:
        rights.grant_rights({"bootstrap.servers": "kafka:9093"}, "User:bob", [("topic", "orders", False, ["Read"])])
    told = str(raised.value)
    assert "granting rights to 'User:bob' failed: these credentials may not alter ACLs" in told
    assert told.endswith("Cluster authorization failed]")
    assert "HeapByteBuffer" not in told
