"""Solvers: from a loss and a graph to a `Solution` with its certificate; and the planner that prices them."""
