"""Reports as lines of plain text: one file per report, with `lines(report)`."""
