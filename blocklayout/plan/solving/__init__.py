"""The cheapest choice: elimination, bounds, and what every other choice would cost."""
