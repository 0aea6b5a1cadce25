"""Tests of lake sinks."""
