"""Local state: byte stores over one ordered table per task, with a buffer for the writes of the running step.

`TaskStore` is the entry point. Layers, from the outside: byte stores by kind (`keyvalue`, `window`, `session`,
`versioned`) -> `buffer.WriteBuffer` (uncommitted writes) -> `table.OrderedTable` (`native`, `rocks`, `memory`).
"""
