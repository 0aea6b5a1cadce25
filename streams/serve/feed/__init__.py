"""Changes of stores, as streams of events."""
