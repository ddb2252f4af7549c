"""Text for training and evaluation: read, filtered, deduplicated, split and stored."""
