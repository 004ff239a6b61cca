"""Types of reports beyond the step."""
