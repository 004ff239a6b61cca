"""When a job on nodes that come and go is done, and what it costs: closed form, and simulated worlds."""
