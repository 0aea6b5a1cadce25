"""Dead letters after they were written: what they say, which have been replayed, and how they are replayed and deleted."""
