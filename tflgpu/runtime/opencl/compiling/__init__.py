"""A driver's compiler in a process of its own: what starts it and asks it, and the program that it runs."""
