"""The machines underneath."""
