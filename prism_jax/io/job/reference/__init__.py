"""Every field that a job file may have, from the schema that checks it: for a page of the docs and for new job files."""
