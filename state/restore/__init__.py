"""From changelog to local store: what to read (`plan`), how to load it (`restorer`), where it lies (`directory`)."""
