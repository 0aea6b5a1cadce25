"""Clients against a model, over histories of records, crashes, restarts and lagging copies: monotonic reads, own writes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.errors import NotUpToBoundError
from streams.serve.position import Position
from streams.serve.served import Freshness
from streams.testing import TopologyTestDriver
from tests.budget import up_to
from tests.serve.test_reading import build

KEYS = ["a", "b"]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(KEYS)),
        st.tuples(st.just("crash"), st.sampled_from(["before_commit", "after_commit", "store_applied"])),
        st.tuples(st.just("restart"), st.booleans()),
        st.tuples(st.just("follow"), st.sampled_from([0, 1])),
        st.tuples(st.just("read"), st.sampled_from(KEYS)),
        st.tuples(st.just("own"), st.sampled_from(KEYS)),
    ),
    min_size=15,
    max_size=40,
)


class Server:
    """A process with copies of its own, which are only brought forward on request."""

    def __init__(self, driver):
        self.served = driver.served()
        self.forward = self.served.copies
        copies = dict(self.forward())
        self.served.copies = lambda: copies
        self.store = self.served.store("counts")


@pytest.mark.slow
@up_to(50)
@given(STEPS)
def test_clients_read_monotonically_and_see_their_own_writes(steps):
    with TopologyTestDriver(build(), partitions={"clicks": 2, "prices": 1}) as driver:
        servers = [Server(driver), Server(driver)]
        topic = driver.create_input_topic("clicks")
        model, seen, commits, written = dict.fromkeys(KEYS, 0), {}, {}, {}
        for turn, (what, argument) in enumerate(steps, 1):
            if what == "write":
                topic.pipe_input(argument, turn, turn)
                model[argument] += 1
                partition = driver.served().store("counts").task_of(argument.encode())
                written[argument] = Position({("clicks", partition): driver._kafka.log("clicks", partition).stable_end})
            elif what == "crash":
                driver.crash_at(argument)
            elif what == "restart":
                driver.restart(argument)
            elif what == "follow":
                servers[argument].forward()
            else:
                server = servers[turn % 2]
                task = server.store.task_of(argument.encode())
                own = written.get(argument, Position()) if what == "own" else Position()
                bound = Freshness(position=own, commits=commits)
                try:
                    server.served.wait(server.store, [task], bound, 0)
                except NotUpToBoundError:
                    server.forward()
                    server.served.wait(server.store, [task], bound, 0)
                answer = server.store.get([argument.encode()])
                value = answer.rows[0].value if answer.rows else 0
                assert seen.get(argument, 0) <= value <= model[argument]
                if what == "own":
                    assert value == model[argument]
                seen[argument] = value
                commits = {**commits, **answer.commits}
