"""`python -m xcompress` is the command line."""

from xcompress.cli import main

main()
