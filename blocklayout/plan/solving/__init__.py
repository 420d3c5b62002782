"""The cheapest choice: elimination, bounds, and the cost of every other choice."""
