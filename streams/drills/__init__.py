"""Fault drills: an application in a separate world, a fault that is injected and seen, and what must hold afterwards.

Each drill starts a scratch broker (or a cluster of three), a flow of input, continuous read_committed readers, and the
application as a real process (`world.py`). The drill (`cases`) injects its fault and proves that it has happened; a drill that
has seen no fault fails. At the end the verifier (`program.py`) compares what every reader has seen with a recomputation from
the input, and the local stores with the ones that the changelogs restore.
"""
