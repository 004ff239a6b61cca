"""Host and streams: what the hosts of some ranks start, call by call, and when it ends; see docs/design.md, section 15."""
