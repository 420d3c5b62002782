"""The commands of ``blocklayout``, one a file: each adds its own parser, and runs.

Importing them is cheap: what a command needs is loaded when it runs.
"""
