"""Model -> graph: what is run of a model, its operators as nodes, and what of it goes to the CPU."""
