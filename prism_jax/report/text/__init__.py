"""Reports as lines of plain text: one module per report, with `lines(report)`."""
