"""`python -m xcompress` is the command line."""

from xcompress.cli.main import main

main()
