"""Divides a program: sub-topologies, their names and order, the inputs of tasks, and the nodes that run together."""
