"""Speed of workers that exchange with parameter servers."""
