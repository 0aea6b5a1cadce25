"""Reads of all tasks as of one micro-batch."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from streams.serve.app import Api
from streams.serve.http.security import Guard, Security
from streams.serve.position import Kept, Step, common_versions, parse, parse_step, step_text, to_json
from streams.testing import TopologyTestDriver
from tests.serve.test_reading import NAMES, build, click

TASKS = 3


class Copy:
    """What a copy keeps of the commits of its task."""

    def __init__(self):
        self.kept, self.seen = [Kept(0, Step(), None)], 0

    def follow(self, commits):
        new = commits[self.seen :]
        if new:
            self.kept[-1] = self.kept[-1]._replace(until=new[0])
            self.kept = [*self.kept[-4:], Kept(len(commits), new[-1], None)]
        self.seen = len(commits)


@given(st.integers(0, 2**32))
def test_all_tasks_are_read_at_one_whole_micro_batch(seed):
    drawn = random.Random(seed)
    commits, copies, at = [[] for _ in range(TASKS)], [Copy() for _ in range(TASKS)], Step()
    states = [dict.fromkeys(range(TASKS), 0)]
    for number in range(12):
        query, batch = ("one", number) if number < 7 else ("two", number - 7)
        step = Step(query, batch, 1000 + number)
        tasks = drawn.sample(range(TASKS), drawn.randint(1, TASKS))
        for done, task in enumerate(tasks, 1):
            commits[task].append(step)
            if done == len(tasks):
                states.append({one: len(commits[one]) for one in range(TASKS)})
            for one in drawn.sample(range(TASKS), drawn.randint(0, TASKS)):
                copies[one].follow(commits[one])
            if drawn.random() < 0.5:
                # Some commit is seen somewhere; then everybody follows what is there, and perhaps more comes.
                at = max((kept.step for copy in copies for kept in copy.kept), key=lambda one: one.now_ms)
                for one in range(TASKS):
                    copies[one].follow(commits[one])
                kept = {one: copy.kept for one, copy in enumerate(copies)}
                found = common_versions(parse(to_json(kept)), parse_step(step_text(at)))
                assert found is None or found in states
                if found is not None and at.batch >= 0:
                    assert states.index(found) >= at.now_ms - 1000
    for task in range(TASKS):
        commits[task].append(Step("two", 99, 9999))
        copies[task].follow(commits[task])
    kept = {one: copy.kept for one, copy in enumerate(copies)}
    assert common_versions(kept, commits[0][-1]) == {task: len(commits[task]) for task in range(TASKS)}


@pytest.fixture
def driver():
    with TopologyTestDriver(build(), partitions={"clicks": TASKS, "prices": TASKS}) as driver:
        yield driver


def client_of(driver):
    return TestClient(
        Api(driver.served(), Guard(Security())).application(), client=("127.0.0.1", 1), base_url="http://localhost"
    )


def test_ranges_windows_and_batches_are_of_the_last_whole_micro_batch(driver):
    client = client_of(driver)
    assert client.get("/v1/stores/counts/range?snapshot=step").json()["rows"] == []
    click(driver, [(name, 1000) for name in NAMES])
    client.get("/v1/stores/counts/range")
    # One task has a commit of a further micro-batch. For all that is known, the others are about to follow.
    click(driver, [("k001", 2000)])
    keys = {"keys": NAMES[:10]}

    def counts(query):
        pages = client.get(f"/v1/stores/counts/range?limit=100{query}").json()["rows"]
        batch = client.post(f"/v1/stores/counts/keys:batch?{query}", json=keys).json()["rows"]
        assert [row for row in pages if row["key"] in keys["keys"]] == batch
        return {row["key"]: row["value"] for row in pages}

    assert counts("")["k001"] == 2
    assert counts("&snapshot=step") == dict.fromkeys(NAMES, 1)
    windows = client.get("/v1/stores/windows/windows?snapshot=step&limit=100").json()["rows"]
    assert {row["value"] for row in windows} == {1}
    click(driver, [(name, 3000) for name in NAMES])
    assert counts("&snapshot=step") == counts("") == {**dict.fromkeys(NAMES, 2), "k001": 3}


def test_pages_stay_at_the_micro_batch(driver):
    client = client_of(driver)
    click(driver, [(name, 1000) for name in NAMES])
    client.get("/v1/stores/counts/range")
    click(driver, [("k059", 2000)])
    first = client.get("/v1/stores/counts/range?snapshot=step&limit=50").json()
    click(driver, [(name, 3000) for name in NAMES])
    second = client.get(f"/v1/stores/counts/range?limit=50&cursor={first['cursor']}").json()
    assert {row["value"] for row in first["rows"] + second["rows"]} == {1}
    assert len(first["rows"] + second["rows"]) == len(NAMES)


def test_copies_that_have_followed_several_commits_at_once_say_so(driver):
    client = client_of(driver)
    click(driver, [(name, 1000) for name in NAMES])
    click(driver, [("k001", 2000)])
    answer = client.get("/v1/stores/counts/range?snapshot=step")
    assert answer.status_code == 409
    assert "no micro-batch in common" in answer.json()["message"]


def test_what_has_no_micro_batches_says_so(driver):
    client = client_of(driver)
    answer = client.get("/v1/stores/names/range?snapshot=step")
    assert answer.status_code == 400
    assert "as of one micro-batch" in answer.json()["message"]
    assert client.get("/v1/stores/counts/range?snapshot=all").status_code == 400
