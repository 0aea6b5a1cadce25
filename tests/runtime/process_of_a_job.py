"""A process that has a job, and nothing else of the script that wrote it."""

from __future__ import annotations

import pickle
from pathlib import Path

from streams.engine.graph.values import dump_value, load_job, load_value


def main(what: str, folder: str) -> None:
    """`write`: values of each kind into a file; `read`: say whether they are what they were."""
    make, check = load_job(Path(folder, "job").read_bytes())
    file = Path(folder, "values")
    if what == "write":
        file.write_bytes(pickle.dumps({kind: dump_value(value) for kind, value in make(5).items()}))
        return
    values = pickle.loads(file.read_bytes())
    for kind, right in check({kind: load_value(data) for kind, data in values.items()}).items():
        print(f"{kind}: {right}")
    print(f"bytes: {len(values['dataclass'])}")
