"""The student, and encoders of the BERT family loaded as students."""
