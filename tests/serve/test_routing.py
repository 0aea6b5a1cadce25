"""Several processes that share the tasks: each answers for all, also when the one that has a task is gone."""

from __future__ import annotations

import asyncio
import re
from contextlib import nullcontext
from dataclasses import dataclass, field
from urllib.parse import quote

import httpx2
import pytest
from starlette.testclient import TestClient

from state.changelog import check_topic, endpoints_config
from state.errors import KafkaClientError
from streams.errors import StoreNotReadyError
from streams.serve.app import Api
from streams.serve.client import StoreClient
from streams.serve.feed import ChangeFeed, Merged, ServerSentEvent, parse_places
from streams.serve.http.security import Guard, Security
from streams.serve.nodes import BEAT_S, Node, Nodes
from streams.serve.routing import NODE, Router
from streams.testing import TopologyTestDriver
from streams.ui.server import PageStores
from tests.serve.test_changes import parsed
from tests.serve.test_reading import NAMES, build, click

PORTS = {"a": 8001, "b": 8002, "c": 8003, "none": 8004, "whole": 8005}


def url_of(name):
    return f"http://127.0.0.1:{PORTS[name]}"


class Log:
    """The topic of the processes, in memory."""

    def __init__(self):
        self.records = []

    def reader(self):
        return _Reader(self)


class _Reader:
    def __init__(self, log):
        self.log, self.at = log, 0

    def write(self, id_, value):
        self.log.records.append((id_, value))

    def read(self):
        found, self.at = self.log.records[self.at :], len(self.log.records)
        return found


@dataclass
class Process:
    """A process with the copies of some tasks."""

    name: str
    cluster: Cluster
    tasks: set[int]
    clock: list[float] = field(default_factory=lambda: [0.0])

    def __post_init__(self):
        self.served = self.cluster.driver.served()
        everything = self.served.copies
        self.served.copies = lambda: {place: copy for place, copy in everything().items() if place[1] in self.tasks}
        self.nodes = Nodes(self.name, self.cluster.log.reader(), self.me, lambda: self.clock[0])
        router = Router(self.nodes, transport=self.cluster)
        api = Api(
            self.served,
            Guard(Security()),
            source=lambda: nullcontext(self.cluster.driver._kafka),
            write=self.cluster.write,
            router=router,
        )
        self.application = api.application()
        self.client = TestClient(self.application, client=("127.0.0.1", 1), base_url=url_of(self.name))

    def me(self):
        return Node(self.name, url_of(self.name), "group", tuple(self.served.copies_here()))


class Cluster(httpx2.AsyncBaseTransport):
    """Processes that reach each other by name, unless they are down."""

    def __init__(self, driver):
        self.driver, self.log = driver, Log()
        self.processes, self.down, self.asked = {}, set(), []
        self.written, self.authorized = [], set()

    def start(self, name, tasks):
        self.processes[name] = Process(name, self, set(tasks))
        return self.processes[name]

    def look(self):
        for _ in range(2):
            for process in self.processes.values():
                process.clock[0] += BEAT_S
                if process.name not in self.down:
                    process.nodes.look()

    async def handle_async_request(self, request):
        (name,) = (name for name, port in PORTS.items() if port == request.url.port)
        self.asked.append(name)
        self.authorized.add(request.headers.get("authorization"))
        if name in self.down:
            raise httpx2.ConnectError("refused")
        there = httpx2.ASGITransport(self.processes[name].application, client=("127.0.0.1", 1))
        return await there.handle_async_request(request)

    def write(self, topic, record):
        self.written.append((topic, record))
        driver = self.driver
        partition = driver.served().store("counts").task_of(record.key)
        offset = driver._kafka.log(topic, partition).stable_end
        driver.create_input_topic(topic).pipe_input(record.key.decode(), int.from_bytes(record.value, "big"), 5000)
        return partition, offset


@pytest.fixture
def cluster():
    with TopologyTestDriver(build(), partitions={"clicks": 3, "prices": 3}) as driver:
        click(driver, [(name, 1000 * number) for number, name in enumerate(NAMES)] * 2)
        found = Cluster(driver)
        for name, tasks in (("a", {0}), ("b", {1}), ("c", {2}), ("none", ()), ("whole", {0, 1, 2})):
            found.start(name, tasks)
        found.down.add("whole")
        found.look()
        yield found


READS = [
    *(("GET", f"/v1/stores/counts/keys/{name}", None) for name in NAMES[:12]),
    ("GET", "/v1/stores/counts/keys/nobody", None),
    ("GET", "/v1/stores/sessions/windows?key=k007", None),
    ("GET", "/v1/stores/windows/windows?key=k007&latest=2", None),
    ("POST", "/v1/stores/counts/keys:batch", {"keys": ["k030", "nobody", "k001", "k002", "k003", "k030"]}),
    ("GET", "/v1/stores/counts/range?from=k010&to=k049&limit=7", None),
    ("GET", "/v1/stores/counts/range?prefix=k0&reverse=1&limit=9", None),
    ("GET", "/v1/stores/windows/windows?limit=11", None),
    ("GET", "/v1/stores/sessions/windows?reverse=1&limit=13", None),
    ("GET", "/v1/stores/names/range", None),
    ("GET", "/v1/stores/counts/range?snapshot=step&limit=7", None),
    ("POST", "/v1/stores/counts/keys:batch?snapshot=step", {"keys": ["k030", "k001", "k002", "k003"]}),
]


def rows(client, method, path, body):
    """All rows of a request, and as of what, over all pages."""
    found, points, cursor = [], set(), None
    while True:
        more = "" if cursor is None else f"{'&' if '?' in path else '?'}cursor={cursor}"
        answer = client.request(method, path + more, json=body) if body else client.request(method, path + more)
        assert answer.status_code in (200, 404), answer.text
        data = answer.json()
        points |= {(one["sub_topology"], one["task"], one["commit"], one["position"]) for one in data["tasks"]}
        found += data.get("rows", [{name: data[name] for name in ("key", "value") if name in data}])
        cursor = data.get("cursor")
        if cursor is None:
            return found, points


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a", "b", "none"])
def test_every_process_gives_what_one_with_all_tasks_gives(cluster, name):
    client, whole = cluster.processes[name].client, cluster.processes["whole"].client
    for read in READS:
        assert rows(client, *read) == rows(whole, *read), read
    assert set(cluster.asked) == {"a", "b", "c"} - {name}


@pytest.mark.parametrize("key", [".", "..", "../../../metrics", "a\nb", "", "ü/%2F"])
def test_a_key_is_the_same_key_in_the_other_process(cluster, key):
    click(cluster.driver, [(key, 70_000)])
    client = cluster.processes["none"].client
    found = client.get(f"/v1/stores/counts/keys/{quote(key, safe='').replace('.', '%2E')}")
    assert (found.status_code, found.json()["key"]) == (200, key)
    typed = StoreClient("", "counts", value=int, http=client)
    assert (typed.get(key), typed.get_all([key])) == (1, {key: 1})
    assert [row.key for row in typed.range(key, key)] == [key]
    assert [row.key for row in StoreClient("", "windows", http=client).windows(key)] == [key]


def test_processes_find_a_micro_batch_that_all_of_them_hold(cluster):
    client = cluster.processes["none"].client
    path = "/v1/stores/counts/range?snapshot=step&limit=100"
    first = client.get(path).json()
    assert {row["value"] for row in first["rows"]} == {2}
    # One task goes on, and its process tells of it; for all that is known, the others are about to follow.
    click(cluster.driver, [("k001", 70_000)])
    cluster.look()
    assert client.get(path).json()["rows"] == first["rows"]
    assert max(row["value"] for row in client.get("/v1/stores/counts/range?limit=100").json()["rows"]) == 3
    click(cluster.driver, [(name, 80_000) for name in NAMES])
    cluster.look()
    assert min(row["value"] for row in client.get(path).json()["rows"]) == 3


def test_the_page_of_a_process_browses_what_others_have(cluster):
    node = PageStores.within(cluster.processes["none"].application, "a-token")
    status, body = asyncio.run(node.get("/v1/stores/counts/keys/k007"))
    assert (status, b'"value":2' in body) == (200, True)
    assert cluster.authorized == {"Bearer a-token"}


def test_bounds_hold_in_the_other_process(cluster):
    client = cluster.processes["none"].client
    found = client.get("/v1/stores/counts/keys/k007")
    assert found.headers[NODE] in set(map(url_of, "abc"))
    commits = found.headers["streams-commit"]
    later = commits.replace("=1", "=2")
    for path in ("keys/k007", "range"):
        refused = client.get(f"/v1/stores/counts/{path}", headers={"Streams-Commit": later})
        assert (refused.status_code, refused.json()["error"]) == (409, "NotUpToBoundError")
    assert refused.headers["streams-commit"]
    click(cluster.driver, [("k007", 2000)])
    again = client.get("/v1/stores/counts/keys/k007", headers={"Streams-Commit": later})
    assert again.json()["value"] == 3


def test_another_copy_answers_for_a_process_that_is_gone(cluster):
    whole = cluster.processes["whole"]
    cluster.down.clear()
    cluster.look()
    cluster.down |= {"b", "c"}
    client = cluster.processes["a"].client
    for read in READS:
        assert rows(client, *read) == rows(whole.client, *read), read
    # Once it is known that a process does not answer, it is not asked again.
    assert (cluster.asked.count("b"), cluster.asked.count("c")) == (1, 1)
    cluster.down.add("whole")
    refused = client.get("/v1/stores/counts/range")
    assert (refused.status_code, refused.json()["error"]) == (503, "StoreNotReadyError")
    cluster.down.clear()
    cluster.look()
    assert client.get("/v1/stores/counts/range").status_code == 200


def test_a_copy_that_has_moved_is_asked_for_where_it_is_now(cluster):
    cluster.processes["b"].tasks.clear()
    cluster.processes["c"].tasks.add(1)
    client, whole = cluster.processes["a"].client, cluster.processes["whole"].client
    # Nobody has heard of it yet, so `b` is asked, which has nothing and asks nobody else.
    assert client.get("/v1/stores/counts/range").status_code == 503
    cluster.look()
    for read in READS:
        assert rows(client, *read) == rows(whole, *read), read


def test_a_process_without_tasks_is_well_as_long_as_there_are_others(cluster):
    served = cluster.processes["none"].served
    served.stores.pop("names")
    client = cluster.processes["none"].client
    assert (client.get("/v1/health").status_code, client.get("/v1/health").json()["copies"]) == (200, 0)
    cluster.down |= {"a", "b", "c"}
    for _ in range(10):
        cluster.look()
    assert client.get("/v1/health").status_code == 503


def test_a_client_may_ask_to_be_sent_there(cluster):
    client = cluster.processes["none"].client
    store = cluster.driver.served().store("counts")
    owner = "abc"[store.task_of(b"k007")]
    sent = client.get("/v1/stores/counts/keys/k007?redirect=true&wait=1s", follow_redirects=False)
    assert sent.status_code == 307
    assert sent.headers["location"] == f"{url_of(owner)}/v1/stores/counts/keys/k007?redirect=true&wait=1s"
    found = cluster.processes[owner].client.get("/v1/stores/counts/keys/k007?redirect=true")
    assert found.json()["value"] == 2
    # Nobody has all tasks, so this request is answered here.
    assert client.get("/v1/stores/counts/range?redirect=true", follow_redirects=False).status_code == 200


def test_metadata_says_who_has_what(cluster):
    client = cluster.processes["none"].client
    found = client.get("/v1/metadata").json()
    assert (found["node"], found["copies"]) == ("none", [copy for copy in found["copies"] if not copy["sub_topology"]])
    nodes = {node["id"]: node for node in found["nodes"]}
    assert set(nodes) == {"a", "b", "c"}
    copy = next(one for one in nodes["b"]["copies"] if one["sub_topology"])
    assert (copy["task"], copy["ready"], copy["commit"]) == (1, True, 1)
    assert copy["position"]
    assert "lag" in copy
    task = cluster.driver.served().store("counts").task_of(b"k007")
    owners = client.get("/v1/metadata/counts?key=k007").json()["tasks"]
    assert owners == [{"task": task, "here": False, "nodes": [{"url": url_of("abc"[task]), "commit": 1}]}]
    assert len(client.get("/v1/metadata/counts").json()["tasks"]) == 3


def test_a_record_is_written_once_where_its_result_is_awaited(cluster):
    client = cluster.processes["none"].client
    found = client.post("/v1/topics/clicks?await=counts", json={"key": "k007", "value": 1})
    assert (found.status_code, found.json()["processed"], found.json()["row"]["value"]) == (200, True, 3)
    assert len(cluster.written) == 1
    cluster.down |= {"a", "b", "c"}
    refused = client.post("/v1/topics/clicks?await=counts", json={"key": "k007", "value": 1})
    assert (refused.status_code, "nothing was written" in refused.text) == (503, True)
    assert len(cluster.written) == 1


def test_a_record_that_may_be_written_is_not_sent_to_another_process(cluster, monkeypatch):
    cluster.down.clear()
    cluster.look()

    async def broken(request):
        raise httpx2.ReadError("gone")

    monkeypatch.setattr(cluster, "handle_async_request", broken)
    refused = cluster.processes["none"].client.post("/v1/topics/clicks?await=counts", json={"key": "k007", "value": 1})
    assert (refused.status_code, "may be written" in refused.text) == (503, True)


def test_a_process_that_is_not_heard_of_is_not_asked(cluster):
    a = cluster.processes["a"]
    cluster.down.add("b")
    for _ in range(10):
        cluster.look()
    assert [node.id for node in a.nodes.others()] == ["c", "none"]
    # Its end is said by a process that is stopped.
    cluster.processes["c"].nodes._leave()
    a.nodes.look()
    assert [node.id for node in a.nodes.others()] == ["none"]


def test_nobody_is_given_up_while_kafka_does_not_answer(cluster, monkeypatch):
    a = cluster.processes["a"]
    read = a.nodes._log.read

    def refused():
        raise KafkaClientError("no brokers")

    monkeypatch.setattr(a.nodes._log, "read", refused)
    for _ in range(100):
        a.clock[0] += 0.25
        a.nodes.look()
    assert a.nodes.trouble == "no brokers"
    assert [node.id for node in a.nodes.others()] == ["b", "c", "none"]
    monkeypatch.setattr(a.nodes._log, "read", read)
    a.nodes.look()
    assert not a.nodes.trouble


def test_a_record_of_another_version_is_ignored(cluster):
    cluster.log.records.append((b"new", b'{"address": 1}'))
    cluster.look()
    assert "new" not in [node.id for node in cluster.processes["a"].nodes.others()]


def test_parts_are_of_the_store(cluster):
    refused = cluster.processes["a"].client.get("/v1/stores/counts/range?part=7")
    assert (refused.status_code, refused.json()["error"]) == (400, "QueryError")


@pytest.mark.parametrize("name", ["a", "none"])
def test_sql_is_answered_over_the_rows_of_all_processes(cluster, name):
    client, whole = cluster.processes[name].client, cluster.processes["whole"].client
    for sql in (
        "SELECT sum(value) FROM counts",
        "SELECT key, value, timestamp FROM counts WHERE key = 'k007'",
        "SELECT key, window_start, window_end, value FROM windows WHERE window_start < 200000 ORDER BY ALL",
        "SELECT count(*) FROM sessions s JOIN counts c USING (key)",
    ):
        found, wanted = (one.post("/v1/sql", json={"sql": sql}).json() for one in (client, whole))
        assert [found[part] for part in ("columns", "rows", "loaded")] == [
            wanted[part] for part in ("columns", "rows", "loaded")
        ], sql
    refused = client.post("/v1/sql", json={"sql": "SELECT nonsense FROM counts"})
    assert refused.status_code == 400
    cluster.down |= {"a", "b", "c"}
    assert client.post("/v1/sql", json={"sql": "SELECT sum(value) FROM counts"}).status_code == 503


CHANGES = "/v1/stores/counts/changes"


@pytest.mark.parametrize("name", ["a", "none"])
def test_changes_of_all_processes_are_one_stream(cluster, name):
    client, whole = cluster.processes[name].client, cluster.processes["whole"].client

    def asked(of, **params):
        return parsed(of.get(CHANGES, params={"follow": "false", **params}).text)

    *rows, (kind, begun, _) = asked(client, initial="true")
    assert kind == "position"
    assert sorted(row["key"] for _, _, data in rows for row in data["rows"]) == NAMES
    assert offsets(begun) == offsets(asked(whole)[0][1])
    click(cluster.driver, [("k007", 70_000), ("k008", 80_000), ("k009", 90_000)])
    (position, *commits), others = asked(client, after=begun), asked(whole, after=begun)[1:]
    assert position[:2] == ("position", begun)
    assert sorted(str(data["rows"]) for _, _, data in commits) == sorted(str(data["rows"]) for _, _, data in others)
    assert offsets(commits[-1][1]) == offsets(others[-1][1])
    # Each id is a place to continue from, here and elsewhere.
    for number, (_, id_, _) in enumerate(commits, 1):
        assert len(asked(client, after=id_)) == len(asked(whole, after=id_)) == 1 + len(commits) - number
    assert asked(client, after=begun, key="k008")[1][2]["rows"] == [{"key": "k008", "value": 3, "timestamp": 80_000}]
    assert client.get(CHANGES, params={"after": "0=1"}).status_code == 400
    # Of topics that were made again, or of another number of tasks.
    for gone in (re.sub("@[0-9a-f]+", "@00000000", begun), "0=1@00000000.1"):
        answer = client.get(CHANGES, params={"after": gone})
        assert (answer.status_code, answer.json()["error"]) == (410, "CursorExpiredError")


def offsets(id_):
    """An id without its times."""
    return {task: place[:2] for task, place in parse_places(id_).items()}


def test_changes_go_on_where_a_task_has_moved_to():
    async def source(node, tasks, after):
        asked.append((node, tuple(tasks), after))
        if node == "gone" and after is None:
            yield ServerSentEvent("rows", b'{"rows": [1]}')
            yield ServerSentEvent("position", id="0=5@a.1,1=7@a.1")
            yield ServerSentEvent("commit", b"{}", "0=6@a.1,1=7@a.1")
            return
        if node == "stays":
            yield ServerSentEvent("position", id="2=9@a.1")
            return
        yield ServerSentEvent("position", id=after)
        yield ServerSentEvent("commit", b"{}", f"{tasks[0]}=8@a.1")
        yield ServerSentEvent.of_error(KafkaClientError("the end"))

    def groups(tasks):
        homes = {0: "gone", 1: "gone", 2: "stays"} if not asked else {0: "x", 1: "y", 2: "stays"}
        if len(asked) in (2, 3):
            # Nobody has them for a while.
            asked.append(None)
            raise StoreNotReadyError("nobody")
        return [(home, [task for task in tasks if homes[task] == home]) for home in sorted({homes[t] for t in tasks})]

    async def all_of_them():
        return [event async for event in Merged(groups, source, follow=True).events([0, 1, 2])]

    asked = []
    found = asyncio.run(all_of_them())
    assert ("x", (0,), "0=6@a.1") in asked
    assert ("y", (1,), "1=7@a.1") in asked
    assert found[0].kind == "rows"
    assert found[1][::2] == ("position", "0=5@a.1,1=7@a.1,2=9@a.1")
    assert found[2][::2] == ("commit", "0=6@a.1,1=7@a.1,2=9@a.1")
    assert found[3][::2] in (("commit", "0=8@a.1,1=7@a.1,2=9@a.1"), ("commit", "0=6@a.1,1=8@a.1,2=9@a.1"))
    assert [event.kind for event in found[1:]].count("position") == 1


def test_events_wait_where_they_come_from_until_all_places_are_known():
    """A process may give its first rows for minutes; what the others commit meanwhile is not collected here."""
    pulled = []

    async def source(node, tasks, after):
        if node == "slow":
            for _ in range(20):
                await asyncio.sleep(0.01)
                yield ServerSentEvent("rows", b'{"rows": [1]}')
            pulled.append("slow")
            yield ServerSentEvent("position", id="1=9@a.1")
            return
        yield ServerSentEvent("position", id="0=1@a.1")
        for number in range(2, 100):
            pulled.append(number)
            yield ServerSentEvent("commit", b"{}", f"0={number}@a.1")
        yield ServerSentEvent.of_error(KafkaClientError("the end"))

    async def all_of_them():
        return [
            event async for event in Merged(lambda tasks: [("fast", [0]), ("slow", [1])], source, True).events([0, 1])
        ]

    found = asyncio.run(all_of_them())
    assert pulled[:2] == [2, "slow"]
    assert [event.kind for event in found] == ["rows"] * 20 + ["position"] + ["commit"] * 98 + ["error"]


def merged(source, groups, follow=True):
    async def all_of_them():
        return [event async for event in Merged(groups, source, follow).events([0])]

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("follow", [True, False])
def test_changes_go_on_although_the_processes_that_are_asked_next_refuse(follow):
    """What is known of the others may be some moments old: they may not have the task any more."""

    async def source(node, tasks, after):
        asked.append((node, after))
        if node in ("refuses", "gone"):
            raise StoreNotReadyError("not here")
        yield ServerSentEvent("position", id=after or "0=5@a.1")
        yield ServerSentEvent("commit", b"{}", "0=6@a.1" if node == "lost" else "0=7@a.1")
        if node == "lost":
            raise StoreNotReadyError("it does not answer any more")
        if follow:
            yield ServerSentEvent.of_error(KafkaClientError("the end"))

    asked, homes = [], iter(["refuses", "lost", "gone", "has it"])
    found = merged(source, lambda tasks: [(next(homes), tasks)], follow)
    assert asked == [("refuses", None), ("lost", None), ("gone", "0=6@a.1"), ("has it", "0=6@a.1")]
    assert [event.id for event in found if event.id] == ["0=5@a.1", "0=6@a.1", "0=7@a.1"]


def test_a_task_that_nobody_gives_ends_the_stream(monkeypatch):
    async def source(node, tasks, after):
        raise StoreNotReadyError("not here")
        yield

    monkeypatch.setattr("streams.serve.feed._PATIENCE_S", 0.5)
    (event,) = merged(source, lambda tasks: [("a", tasks)])
    assert (event.kind, b"for a minute" in event.data) == ("error", True)


def test_first_rows_are_not_given_twice():
    async def source(node, tasks, after):
        yield ServerSentEvent("rows", b'{"rows": [1]}')
        raise StoreNotReadyError("gone")

    rows, error = merged(source, lambda tasks: [("a", tasks)], follow=False)
    assert (rows.kind, b"begin again" in error.data) == ("rows", True)


def test_changes_go_on_when_a_task_leaves_the_process_that_had_all_of_them(cluster, monkeypatch):
    cluster.down.clear()
    cluster.look()
    whole = cluster.processes["whole"]
    ((_, begun, _),) = parsed(whole.client.get(CHANGES, params={"follow": "false"}).text)

    class Moving(ChangeFeed):
        def next(self):
            whole.tasks.discard(1)
            return super().next()

    monkeypatch.setattr("streams.serve.app.ChangeFeed", Moving)
    click(cluster.driver, [(name, 70_000) for name in NAMES])
    found = parsed(whole.client.get(CHANGES, params={"follow": "false", "after": begun}).text)
    assert sorted(row["key"] for kind, _, data in found if kind == "commit" for row in data["rows"]) == NAMES
    assert "error" not in [kind for kind, _, _ in found]


def test_changes_that_nobody_has_are_refused_at_once(cluster):
    whole = cluster.processes["whole"]
    whole.tasks.clear()
    assert whole.client.get(CHANGES).status_code == 503


def test_changes_of_a_process_that_is_gone_are_not_taken_for_all(cluster, monkeypatch):
    """Without `follow`, too: what its tasks had is missing."""
    monkeypatch.setattr("streams.serve.feed._PATIENCE_S", 0.5)
    client = cluster.processes["none"].client
    cluster.processes["whole"].tasks = set()
    cluster.down.add("b")
    (kind, _, data) = parsed(client.get(CHANGES, params={"initial": "true", "follow": "false"}).text)[-1]
    assert (kind, data["error"]) == ("error", "StoreNotReadyError")


def test_the_topic_of_the_processes_is_accepted_by_the_next_one():
    for replication in (1, 3):
        found = {**endpoints_config(replication), "compression.type": "producer"}
        check_topic("app-__endpoints", 1, 1, found, endpoints_config(replication))


def test_a_process_from_before_a_rescale_is_not_asked_because_its_tasks_have_other_keys(cluster):
    """After 4 -> 3 tasks, for instance, it would say of a key of task 1 that there is no row: it has it in task 3."""
    (old,) = cluster.processes["b"].served.copies_here()[:1]
    assert (old["task"], old["tasks"]) == (1, 3)
    before = {**old, "tasks": 4, "commit": 99}
    cluster.processes["b"].me = cluster.processes["b"].nodes._me = lambda: Node("b", url_of("b"), "group", (before,))
    cluster.look()
    key = next(name for name in NAMES if cluster.processes["a"].served.store("counts").task_of(name.encode()) == 1)
    answer = cluster.processes["a"].client.get(f"/v1/stores/counts/keys/{key}")
    assert (answer.status_code, cluster.asked) == (503, [])
    cluster.down.remove("whole")
    cluster.look()
    assert cluster.processes["a"].client.get(f"/v1/stores/counts/keys/{key}").status_code == 200
    assert cluster.asked == ["whole"]
