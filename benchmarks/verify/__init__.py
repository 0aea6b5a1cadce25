"""The recomputation of each workload's output, in plain numpy: it shares no code with the engine or with any peer."""
