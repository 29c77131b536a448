"""What holds for all tests."""


def pytest_collection_modifyitems(items):
    """The workflow's tests first: one worker takes minutes for them, the others do the rest."""
    items.sort(key=lambda item: "workflow" not in item.path.parts)
