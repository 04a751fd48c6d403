"""Commands of ``tflgpu``: a module for each, or for a few that share most of what they do."""
