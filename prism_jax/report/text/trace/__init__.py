"""Reports on recorded jobs as lines of plain text."""
