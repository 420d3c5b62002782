"""From a model, a saved plan or a saved session to a session that runs."""
