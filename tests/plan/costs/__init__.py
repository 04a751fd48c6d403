"""What operators cost by the size of their inputs."""
