"""The options that verbs have which run a model, and `run` itself."""
