"""Who runs when all jobs are ranked anew: by an index that is learned, and by filling all GPUs."""
