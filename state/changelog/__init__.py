"""The changelog topics: their names and settings, the form of their records, and trimming by stream time."""
