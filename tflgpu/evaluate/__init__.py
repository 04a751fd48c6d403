"""How right a model is: its answers on the device and on LiteRT's CPU, against each other and against the truth."""
