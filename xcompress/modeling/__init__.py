"""The student, and other encoders loaded as students."""
