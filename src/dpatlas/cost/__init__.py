"""What jobs cost: counts of work, rates fitted to past runs, the plan."""
