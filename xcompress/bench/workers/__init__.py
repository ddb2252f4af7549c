"""Worker processes that measure one subject each."""
