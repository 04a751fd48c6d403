"""Language models with drawn weights: tokens a second and memory, beside LiteRT on the CPU and torch on a GPU."""
