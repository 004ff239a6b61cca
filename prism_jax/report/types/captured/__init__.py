"""Types of reports on captured programs and what they are captured from."""
