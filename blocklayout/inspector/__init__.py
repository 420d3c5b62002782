"""Views of layouts and plans: text for people, values for machines.

Importing it loads none of the views: take the module that has what you need.
"""
