"""What runs an executable on a device: by launches, or as one kernel."""
