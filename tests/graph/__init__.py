"""The graph and its passes."""
