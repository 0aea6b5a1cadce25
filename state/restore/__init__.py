"""From changelog to local store: what to read (`plan`), how to load it (`restorer`), and where it is stored (`directory`)."""
