"""Tests of the costs of operators by the size of their inputs."""
