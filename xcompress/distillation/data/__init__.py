"""What a training step reads: batches of token ids with their labels."""
