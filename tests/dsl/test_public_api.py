"""What `streams` exports is what it says, and nothing else."""

import subprocess
import sys
import types

import streams
from streams import api


def test_all_is_the_public_names():
    public = {
        name
        for name, value in vars(api).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert set(streams.__all__) == public | {"KafkaStreams"}
    assert list(streams.__all__) == sorted(streams.__all__)
    assert set(streams.__all__) <= set(dir(streams))


def test_importing_the_package_imports_nothing_large_before_a_name_is_used():
    program = (
        "import sys, streams, streams.source.offsets\n"
        "large = {'numpy', 'pyarrow', 'numba', 'pandas', 'streams.api'}\n"
        "before = large & set(sys.modules)\n"
        "from streams import *\n"
        "print(before, StreamsBuilder is streams.StreamsBuilder, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set() True True\n"


def test_public_things_are_documented():
    undocumented = [
        name for name in streams.__all__ if not (getattr(streams, name).__doc__ or "").strip() and name.isidentifier()
    ]
    assert undocumented == []
