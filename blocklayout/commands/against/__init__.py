"""Against other runtimes: each in a process of its own, one awake at a time, in turn."""
