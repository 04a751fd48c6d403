"""What runs operators on the CPU."""
