"""What a live cluster keeps: one durable file, who may write into it, and how it is read."""
