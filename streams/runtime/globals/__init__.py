"""Global tables: each process reads them as a whole."""
