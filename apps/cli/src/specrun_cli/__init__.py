"""The `specrun` command: reads arguments, calls the packages, prints."""
