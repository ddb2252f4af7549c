"""A static web page that searches sentences by meaning, entirely in the browser."""
