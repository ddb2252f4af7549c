"""The command line: one file a command. Heavy modules are imported when a command runs."""

INTERRUPTED = "interrupted"
"""What Ctrl-C prints."""
INTERRUPT_CODE = 130
"""The exit code of Ctrl-C, as in a shell."""
