"""A node's side of a live cluster: the agent of each node, and the line to the controller."""
