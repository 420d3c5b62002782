"""What a step or a reorder costs on a machine: a model, measured times, and where those are kept."""
