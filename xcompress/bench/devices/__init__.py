"""Devices that a bench runs on: this machine, a phone's limits, a browser, another host."""
