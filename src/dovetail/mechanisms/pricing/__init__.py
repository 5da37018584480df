"""One price for GPUs: what jobs are worth, what they make of more GPUs, and who gets them."""
