"""Vocabularies: count tokens, choose which to keep, trim or train."""
