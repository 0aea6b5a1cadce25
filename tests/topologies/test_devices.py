"""The topology of devices on generated readings, against numpy and pandas."""

import pytest

from streams.testing import TopologyTestDriver
from topologies.comparison import compare
from topologies.devices import GAPS, READINGS, STATS_1S, STATS_10S, build
from topologies.devices_data import Devices
from topologies.devices_expected import all_readings, expected_gaps, expected_windows
from topologies.devices_load import partitions_of

PARTITIONS = dict.fromkeys((READINGS, STATS_1S, STATS_10S, GAPS), 4)
GRACE_MS = 2_000


@pytest.mark.parametrize("restart", [False, True])
def test_equals_the_recomputation(restart: bool):
    # 12 s of event time; with many late and lost readings, so that windows close on some and gaps open and close.
    devices = Devices(slots=1_200, devices=12, late_share=0.02, lost_share=0.005)
    with TopologyTestDriver(build(), partitions=PARTITIONS) as driver:
        readings = driver.create_input_topic(READINGS)
        for number, block in enumerate(devices.blocks()):
            if restart and number == 2:
                driver.restart(wipe_state=True)
            with driver.batch():
                rows = zip(block.keys().to_pylist(), block.values().to_pylist(), block.timestamps.tolist(), strict=True)
                for key, value, timestamp in rows:
                    readings.pipe_bytes(key, value, timestamp)
        tables = {
            topic: driver.create_output_topic(topic).read_key_values_to_map() for topic in (STATS_1S, STATS_10S, GAPS)
        }
    sent = all_readings(devices, partitions_of(devices))
    assert compare(expected_windows(sent, 1_000, GRACE_MS), tables[STATS_1S]) == []
    assert compare(expected_windows(sent, 10_000, GRACE_MS), tables[STATS_10S]) == []
    gaps = expected_gaps(sent)
    assert len(gaps) == devices.devices
    assert compare(gaps, {device: missing for device, missing in tables[GAPS].items() if missing}) == []


def test_a_gap_is_reported_when_it_appears_grows_and_is_closed():
    with TopologyTestDriver(build(), partitions=PARTITIONS) as driver:
        readings, gaps = driver.create_input_topic(READINGS), driver.create_output_topic(GAPS)
        told = []
        for sequence in (0, 1, 3, 4, 7, 2, 5, 6, 8):
            value = {"d": "dev-000001", "s": sequence, "t": sequence, "v": [1.0, 2.0, 3.0], "st": "ok"}
            readings.pipe_input("dev-000001", value, 1_000 + sequence)
            told.append([missing for _, missing in gaps.read_key_values_to_list()])
        assert told == [[], [], [1], [], [3], [2], [1], [0], []]
