"""Ready-made topologies: the demonstrations and the applications that the tests and benchmarks run."""
