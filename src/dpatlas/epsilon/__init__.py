"""Is this epsilon right? Every valid accounting of a claim, its verdict, and the likely slip.

    from dpatlas import check_epsilon

Needs numpy, scipy, dp-accounting and pydantic alone.
"""
