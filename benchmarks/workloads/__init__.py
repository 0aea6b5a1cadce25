"""The workloads: topics, input, the engine's topology and the verifier of each; `WORKLOADS` has them by name."""
