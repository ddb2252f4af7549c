"""Teacher to assistant to student, stage by stage."""
