"""The jobs: a spec in, a record out."""

# Packages whose versions a record of any kind names.
PACKAGES = ("torch", "numpy", "scipy", "dp-accounting")
