"""The five papers, a folder each."""
