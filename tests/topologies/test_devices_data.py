import numpy as np
import orjson
import pytest

from topologies.devices_data import BLOCK_SLOTS, MOST_LATE_SLOTS, PERIOD_MS, VALUE_BYTES, Devices, Readings


def whole(devices: Devices) -> Readings:
    first, *others = devices.blocks()
    for block in others:
        first = first.then(block)
    return first


def test_a_value_is_exactly_160_bytes_of_the_documented_json():
    devices = Devices(slots=1_005, devices=7)
    for block in devices.blocks():
        keys, values = block.keys().to_pylist(), block.values().to_pylist()
        assert {len(value) for value in values} == {VALUE_BYTES}
        for row in range(0, len(block), 13):
            decoded = orjson.loads(values[row])
            assert list(decoded) == ["d", "s", "t", "v", "st", "pad"]
            assert decoded["d"].encode() == keys[row] == b"dev-%06d" % block.devices[row]
            assert decoded["s"] == block.sequence[row]
            assert decoded["t"] == block.timestamps[row]
            assert decoded["v"] == [number / 1000 for number in block.sensors[row].tolist()]
            assert decoded["st"] == "ok"
            assert set(decoded["pad"]) == {"x"}


def test_a_device_sends_every_10_ms_at_its_own_phase():
    readings = whole(Devices(slots=50, devices=300, late_share=0))
    assert (readings.timestamps == 1_700_000_000_000 + readings.sequence * PERIOD_MS + readings.devices // 100).all()
    assert (np.diff(readings.timestamps) >= 0).all()


def test_every_reading_comes_exactly_once_and_one_in_a_thousand_late():
    devices = Devices(slots=3 * BLOCK_SLOTS + 17, devices=200)
    readings = whole(devices)
    numbers = readings.sequence * devices.devices + readings.devices
    assert np.array_equal(np.sort(numbers), np.arange(devices.slots * devices.devices))
    newest = np.full(devices.devices, -1)
    late_by = []
    for device, sequence in zip(readings.devices.tolist(), readings.sequence.tolist(), strict=True):
        if sequence < newest[device]:
            late_by.append(newest[device] - sequence)
        newest[device] = max(newest[device], sequence)
    assert 0.0007 < len(late_by) / len(readings) < 0.0013
    assert max(late_by) <= MOST_LATE_SLOTS
    assert max(late_by) > MOST_LATE_SLOTS * 0.8


def test_the_order_is_that_of_sending():
    readings = whole(Devices(slots=600, devices=20, late_share=0.05))
    assert (np.diff(readings.slots * 1_000 + readings.devices) >= 0).all()


def test_the_seed_decides_the_bytes():
    one, same, other = (whole(Devices(slots=300, devices=5, seed=seed)).text for seed in (42, 42, 43))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("share", [0.0, 0.01])
def test_lost_readings_never_come(share: float):
    devices = Devices(slots=500, devices=100, lost_share=share)
    lost = devices.slots * devices.devices - sum(len(block) for block in devices.blocks())
    assert lost == pytest.approx(share * devices.slots * devices.devices, rel=0.2)
