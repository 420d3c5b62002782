"""Reports on a plan, as text."""
