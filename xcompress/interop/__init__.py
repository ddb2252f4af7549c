"""Students as models of sentence-transformers and transformers."""
