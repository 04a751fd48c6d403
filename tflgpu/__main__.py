"""``python -m tflgpu``: the command line."""

from tflgpu.cli import app

if __name__ == "__main__":
    app()
