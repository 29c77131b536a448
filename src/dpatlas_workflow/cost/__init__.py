"""What jobs cost: units of work by kind, measured seconds per unit, the plan."""
