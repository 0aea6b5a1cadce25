"""The code of the section "Testing" of `docs/guide.md` does what it says."""

import re

from streams import Materialized, StreamsBuilder
from streams.topology.topology import Topology
from tests.docs.page import PAGES


def build() -> Topology:
    builder = StreamsBuilder()
    counts = builder.stream("in").group_by_key().count(named="per-key", materialized=Materialized(name="counts"))
    counts.to_stream().to("counts")
    return builder.build()


def test_it_runs() -> None:
    section = PAGES["guide"].read_text(encoding="utf-8").split("\n## Testing\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"```py\n(.*?)```", section, re.DOTALL)
    exec(compile(code, str(PAGES["guide"]), "exec"), {"build": build})
