"""Show plans and runs to people: text, pages, profiles and reports."""
