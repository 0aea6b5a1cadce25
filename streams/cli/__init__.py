"""The command `streams`: brokers for development, running topologies, looking at what they left."""
