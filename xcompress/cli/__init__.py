"""The command line: one file a command. Heavy modules are imported when a command runs."""
