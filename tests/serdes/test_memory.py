"""What serdes write occupies memory of its own size: a step holds hundreds of thousands of results."""

import subprocess
import sys

MEASURE = """
import resource
from streams import JsonSerde
from streams.serdes.columns import write_all
values = [{"n": number} for number in range(40_000)]
write_all(JsonSerde(), "topic", values[:10])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
kept = [JsonSerde().serialize("topic", value) for value in values[:20_000]], write_all(JsonSerde(), "topic", values)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_json_takes_no_more_memory_than_its_text() -> None:
    done = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, timeout=120, check=True)
    assert int(done.stdout) < 40_000  # KiB; 4 KiB a value would be 240 000
