"""The commands of ``blocklayout``, one a file: each adds its own parser, and runs.

Importing them is cheap: a command loads its own needs when it runs.
"""
