"""From changelog to local store: planning what to read (`plan`), loading it (`restorer`), and its folder (`directory`)."""
