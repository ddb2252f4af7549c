"""Fixtures that every folder of tests may use."""
