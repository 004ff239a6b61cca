"""Job files written: sections of them from objects, whole files, and files with another plan."""
