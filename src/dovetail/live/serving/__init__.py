"""What `dovetail up` starts: policy, belief and forecast wired to the live world."""
