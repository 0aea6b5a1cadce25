"""The probe beside a run: it notices when the machine stands still."""

from __future__ import annotations

import signal
import time

from benchmarks.harness.probe import MachineProbe


def test_a_machine_that_stands_still_is_noticed() -> None:
    with MachineProbe() as probe:
        time.sleep(0.5)  # the process that sleeps has begun
        probe._sleeper.send_signal(signal.SIGSTOP)
        time.sleep(1.2)
        probe._sleeper.send_signal(signal.SIGCONT)
        time.sleep(0.2)
    assert probe.stood_still_s >= 0.8
    assert probe.mean_us > 0
