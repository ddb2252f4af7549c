"""The command line: one file a command. What is heavy is imported inside the commands."""
