"""Workers: each holds one subject and measures it, in a process of its own or in a browser."""
