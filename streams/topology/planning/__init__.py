"""How a program is divided: sub-topologies, their names and order, the inputs of tasks, and what is processed together."""
