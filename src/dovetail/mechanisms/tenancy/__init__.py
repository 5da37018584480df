"""What a wrapper does for tenants: who is next, who lends GPUs, and who gives them back."""
