"""Tables of published step times: every row becomes a job, or says why not."""
