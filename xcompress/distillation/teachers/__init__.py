"""Teachers: what a recipe names becomes a function from sentences to vectors."""
