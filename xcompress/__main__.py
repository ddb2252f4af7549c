"""Run the command line with `python -m xcompress`."""

from xcompress.cli.main import main

main()
