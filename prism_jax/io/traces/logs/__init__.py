"""Step times in logs of training frameworks."""
