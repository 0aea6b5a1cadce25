"""State of stream processing tasks: stores, changelogs, the commit protocol and restore. Never imports `streams`."""
