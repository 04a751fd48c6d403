"""The graph that compiling rewrites, and the layout of its tensors on a device."""
