"""A member of a group that is given the records of its partitions."""

from __future__ import annotations

import uuid
from contextlib import closing

from state.kafka.config import ClientConfig
from state.kafka.consumers import GroupMember
from state.kafka.producer import TransactionalProducer
from state.kafka.topics import TopicPartition
from tests.conftest import TopicFactory


def test_a_member_is_given_what_is_new_and_committed(client: ClientConfig, topic: TopicFactory) -> None:
    name, heard = topic(), list[tuple[TopicPartition, int, bytes]]()

    def write(value: bytes, commit: bool = True) -> None:
        """The next transaction aborts one that is not committed."""
        with TransactionalProducer({**client, "log_level": "0"}, name, 30) as producer:
            producer.init_transactions()
            producer.begin()
            producer.send(name, 0, b"k", value, 1)
            producer.flush()
            if commit:
                producer.commit()

    write(b"old")
    with closing(GroupMember(client, uuid.uuid4().hex, [name], lambda *record: heard.append(record))) as member:
        while member.poll(0.1) != {(name, 0)}:
            pass
        while not heard:
            # The member begins at the end, and asks for it some time after it was given the partition.
            write(b"new")
            member.poll(0.1)
        write(b"aborted", commit=False)
        write(b"last")
        while heard[-1][2] != b"last":
            member.poll(0.1)
    assert {value for _, _, value in heard} == {b"new", b"last"}
    offsets = [offset for _, offset, _ in heard]
    assert offsets == sorted(set(offsets))
    assert {place for place, _, _ in heard} == {(name, 0)}
