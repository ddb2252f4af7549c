"""Trim an encoder's vocabulary, and the rows of its word table with it, to what some languages or texts use."""
