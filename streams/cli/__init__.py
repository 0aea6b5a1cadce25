"""The command `streams`: starts brokers for development, runs topologies, and inspects their state."""
