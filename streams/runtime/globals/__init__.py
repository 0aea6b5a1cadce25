"""Global tables, which each process reads as a whole."""
