"""Retries of operators through topics with delays: which topic is next, and the order of the records of a key meanwhile."""
