"""Memory, latency and accuracy against a reference, measured side by side."""
