"""Text logs of training frameworks: one file per framework, lines of which hold a step."""
