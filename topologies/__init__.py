"""Ready-made topologies: demonstrations, and applications for the tests and benchmarks."""
