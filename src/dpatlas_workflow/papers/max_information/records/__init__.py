"""max_information: specs and records, a module for each kind of job; here a type of several."""

from typing import Annotated

from dpatlas.base.fields import AsWritten, Bounded, Once, setting

# AsWritten: these numbers go into specs exactly as the config writes them.
Numbers = Annotated[Once[Annotated[Bounded, AsWritten]], setting("Numbers above 0.", min_length=1)]
