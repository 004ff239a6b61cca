"""Which GPUs are slow: tables of measured slowdowns, and the reports of detectors from which such tables are made."""
