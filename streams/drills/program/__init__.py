"""The application that drills use by default: its topology, its input, and a model that computes all results independently."""
