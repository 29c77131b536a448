"""One module per sub-command of `python -m dpatlas`: `main(arguments) -> exit code`."""
