"""Rows of tables that state samples per second of a named benchmark, such as results of MLPerf Training."""
