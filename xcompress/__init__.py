"""xcompress: small, fast multilingual sentence encoders, with the loss measured."""
