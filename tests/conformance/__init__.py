"""Conformance: cases in the oracle's JSON format, run through the public DSL and compared with their expected output.

Run it with ``python -m tests.conformance [--engine driver|spark] [--mode compat|strict] FILE|FOLDER...``.
"""
