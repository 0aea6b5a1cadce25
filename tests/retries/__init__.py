"""Tests of retries and dead letters."""
