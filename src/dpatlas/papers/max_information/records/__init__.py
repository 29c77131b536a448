"""max_information: what specs and metrics of each kind of job hold."""
