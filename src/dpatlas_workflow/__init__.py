"""The five papers, and what runs them, judges them and shows them; the library is `dpatlas`."""
