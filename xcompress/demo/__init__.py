"""A folder with a page that searches sentences by meaning, in the browser alone."""

from xcompress.demo.folder import write_demo

__all__ = ["write_demo"]
