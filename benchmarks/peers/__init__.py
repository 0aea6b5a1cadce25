"""The systems that the engine is measured beside: a folder for each, with what it runs and what it cannot do in `peer.json`.

`benchmarks/README.md` describes the interface; `make peers` sets up what the programs need (`environments.py`).
"""
