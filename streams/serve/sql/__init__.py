"""SQL over served stores: queries, and the processes in which DuckDB runs them."""
