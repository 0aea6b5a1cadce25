"""`streams restore --verify`: a sound state is equal, a wrong row is found with its key and position, odd logs are no trouble."""

import pytest

from state.changelog import DAY_MS, changelog_topic, commits_topic
from state.errors import KafkaClientError, StateCorruptedError
from state.restore import restorer as loading
from state.restore.place import TaskPlace
from state.restore.verify import verify_task
from state.stores.changelog_records import ChangelogBatch
from state.stores.codec import timestamped
from state.stores.position import META_KEY
from state.tables.open_tables import open_table
from tests.restore.logs import APPLICATION, SPECS, binary, commit, marker_of
from tests.snapshots.life import Life

PLACE = TaskPlace(APPLICATION, "orders", 0, 1, "hash")
COMMITS = commits_topic(APPLICATION, "orders")


class Verified(Life):
    """A life whose markers are in a log, too."""

    def step(self, wait=True):
        super().step(wait)
        self.logs.append_marker(COMMITS, marker_of(self.target))

    def verify(self, into="scratch", **options):
        found = verify_task(self.logs, PLACE, SPECS, self.folder / self.host, self.folder / into, **options)
        assert not (self.folder / into / ".local" / APPLICATION / "orders" / "0").exists(), "the links are gone"
        return found

    def database(self):
        return next((self.folder / self.host).glob("*/*/*/db"))

    def spoil(self, *rows):
        """Changes rows of the local database behind the engine's back."""
        table = open_table(self.database())
        table.write(rows)
        table.close()


@pytest.fixture
def life(tmp_path):
    life = Verified(tmp_path, steps=10**9)
    for _ in range(8):
        life.step()
    return life


def faults(found):
    return {store.store: store.differences for store in found.stores if store.differences}


def row(life, key):
    """The local key and value of a row of the store `plain`, as the database has them."""
    table = open_table(life.database())
    found = next((one, value) for one, value in table.scan(b"", None) if one[2:] == key and one != META_KEY)
    table.close()
    return found


def test_a_sound_state_is_equal(life):
    found = life.verify()
    assert (found.here, found.version, faults(found)) == (True, 8, {})
    assert {store.store for store in found.stores} == {spec.name for spec in SPECS}
    assert sum(store.rows for store in found.stores) > 0
    assert found.report.records > 0


def test_a_state_that_is_behind_is_brought_forward_first_and_left_alone(life):
    before = row(life, b"sure")
    life.logs.append_marker(COMMITS, marker_of(life.target))
    local, life.host = life.host, "other"
    for _ in range(3):
        life.step()
    life.host = local
    found = life.verify()
    assert (found.version, faults(found)) == (11, {})
    assert all(not store.distrust for store in found.stores), "compared, and not restored"
    assert row(life, b"sure") == before


@pytest.mark.parametrize("fault", ["changed", "lost", "invented"])
def test_a_wrong_row_is_found_with_its_key_and_position(life, fault):
    key, value = row(life, b"sure")
    changed = {"changed": (key, b"wrong"), "lost": (key, None), "invented": (key + b"!", b"new")}[fault]
    life.spoil(changed)
    found = life.verify()
    assert faults(found) == {"plain": 1}
    (difference,) = next(store.first for store in found.stores if store.store == "plain")
    assert difference.key == changed[0][2:]
    assert difference.local == changed[1]
    assert difference.rebuilt == (None if fault == "invented" else value)
    records = life.logs.records[changelog_topic(APPLICATION, "plain")]
    assert difference.offset == max((at for at, name, *_ in records if name == difference.key), default=None)


def test_only_the_first_differences_are_described_and_all_are_counted(life):
    key, _ = row(life, b"sure")
    life.spoil(*((key + b"%02d" % number, b"new") for number in range(20)))
    store = next(store for store in life.verify(shown=3).stores if store.store == "plain")
    assert (store.differences, len(store.first)) == (20, 3)


def test_a_key_that_was_written_after_the_commit_proves_nothing(life):
    """Compaction may have removed the record of the commit while the changelog was being read."""
    key, _ = row(life, b"sure")
    life.spoil((key, b"wrong"))
    life.logs.append(changelog_topic(APPLICATION, "plain"), ChangelogBatch(*binary([b"sure"], [b"later"], [9])))
    assert faults(life.verify()) == {}


def test_a_state_of_another_origin_is_not_compared_but_named(life):
    life.logs.ids = {changelog_topic(APPLICATION, spec.name): "id" for spec in SPECS}
    table = open_table(life.database())
    meta = table.get(META_KEY)
    table.write([(META_KEY, meta.replace(b'"query"', b'"other"'))])
    table.close()
    found = life.verify()
    assert {store.distrust for store in found.stores} == {"local state comes from query other, not from query"}


def test_a_damaged_database_is_an_error(life, monkeypatch):
    from state.tables import open_tables as rocks_reader

    monkeypatch.setattr(rocks_reader, "_PAUSE_S", 0)
    (life.database() / "CURRENT").write_bytes(b"rubbish")
    with pytest.raises(StateCorruptedError):
        life.verify()


def test_a_host_without_the_task_only_restores(life):
    life.host = "elsewhere"
    found = life.verify()
    assert (found.here, found.stores, found.version) == (False, (), 8)
    assert found.report.records > 0


def test_a_task_that_has_never_committed_has_nothing_to_compare(tmp_path):
    found = Verified(tmp_path).verify()
    assert (found.version, found.stores) == (0, ())


def test_an_interrupted_verification_continues(life, monkeypatch):
    monkeypatch.setattr(loading, "CHUNK_RECORDS", 10)
    whole = life.verify("whole").report.records
    life.logs.fail_after = life.logs.reads + 10
    with pytest.raises(KafkaClientError):
        life.verify()
    life.logs.fail_after = None
    found = life.verify()
    assert faults(found) == {}
    assert found.report.records < whole


def odd_log(life, how):
    """Makes the end or the beginning of a changelog odd; the state stays what it was."""
    topic = changelog_topic(APPLICATION, "plain")
    if how == "only control records":
        life.logs.records[topic] = []
    elif how == "aborted tail":
        life.logs.ends[topic] += 7
    elif how == "start moved":
        kept = {key: at for at, key, *_ in life.logs.records[topic]}
        life.logs.records[topic] = [one for one in life.logs.records[topic] if kept[one[1]] == one[0]]
        life.logs.begins[topic] = min(kept.values())


@pytest.mark.parametrize("how", ["aborted tail", "start moved"])
def test_odd_ends_of_a_log_change_nothing(life, how):
    odd_log(life, how)
    found = life.verify()
    assert faults(found) == {}
    assert all(not store.distrust for store in found.stores)


def test_a_store_whose_log_is_empty_is_empty(tmp_path):
    life = Verified(tmp_path)
    with (stores := life.stores()).open() as store:
        store.store("table").put(b"only", timestamped(b"v", 1), 1)
        life.version, life.target = 1, commit(store, life.logs, 1, life.now_ms)
    assert stores.directory.path.exists()
    life.logs.append_marker(COMMITS, marker_of(life.target))
    found = life.verify()
    assert {store.store: store.rows for store in found.stores}["plain"] == 0
    assert faults(found) == {}


def test_a_log_of_control_records_alone_gives_an_empty_store(tmp_path):
    """Its records, tombstones, were compacted away since."""
    life = Verified(tmp_path, steps=10**9)
    with life.stores().open() as store:
        store.store("plain").put(b"gone", None, 1)
        store.store("table").put(b"only", timestamped(b"v", 1), 1)
        life.version, life.target = 1, commit(store, life.logs, 1, life.now_ms - 40 * DAY_MS)
    odd_log(life, "only control records")
    life.logs.append_marker(COMMITS, marker_of(life.target))
    found = life.verify()
    assert faults(found) == {}
