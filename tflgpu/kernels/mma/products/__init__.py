"""What else matrix units multiply: two activations, and images of few channels by depthwise weights."""
