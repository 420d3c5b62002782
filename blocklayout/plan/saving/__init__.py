"""Plans in files, and why one that comes from a file can be believed."""
