"""The command line: commands are made from use cases."""
