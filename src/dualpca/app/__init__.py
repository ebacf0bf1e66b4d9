"""The application: command line, report, explorer, plots, tables, experiments."""
