"""Where a bench runs: this machine, a phone-like limit, a browser, another host."""
