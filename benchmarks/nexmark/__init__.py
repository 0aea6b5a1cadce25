"""Nexmark: its generator's events, its queries as a user of the DSL writes them, and their recomputation by DuckDB."""
