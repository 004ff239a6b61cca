"""Jobs as trainers state them: the heads of logs, and the names of their arguments."""
