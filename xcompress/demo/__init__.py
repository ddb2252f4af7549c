"""A folder with a page that searches sentences by meaning, in the browser alone."""
