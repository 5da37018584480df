"""What `dovetail profile` does: dry runs of a script, and the model profile fitted to them."""
