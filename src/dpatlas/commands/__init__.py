"""One module per command of the library: `main(arguments) -> exit code`."""
