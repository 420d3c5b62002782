"""What a plan says to people."""
