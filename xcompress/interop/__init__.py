"""The student inside sentence-transformers and transformers."""
