"""Text in: parallel pairs and graded pairs, filtered, split and de-duplicated."""
