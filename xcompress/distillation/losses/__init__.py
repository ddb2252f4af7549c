"""The losses of the three papers, and the loss of a stage."""
