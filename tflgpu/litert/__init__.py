"""LiteRT's interpreter, and a process of its own for what has not run before (the extra ``fallback``)."""
