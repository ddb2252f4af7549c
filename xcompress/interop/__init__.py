"""Students as models of sentence-transformers and transformers, and bundles as models of mteb."""
