"""One micro-batch of one sub-topology, from logged offsets to committed steps: for Spark, the test driver and the simulator."""
