"""The op table and real models on drivers that are not everywhere."""
