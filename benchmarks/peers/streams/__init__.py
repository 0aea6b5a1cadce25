"""The engine itself as a peer."""
