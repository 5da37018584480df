"""Jobs that share GPUs: who may share with whom, and where."""
