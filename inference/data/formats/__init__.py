"""One reader per file format of measurements."""
