"""Fields of the training of a public backbone, which the config and its spec share."""

from typing import Annotated

from dpatlas.base.fields import Model, setting

Epochs = Annotated[int, setting("Passes over the images.", ge=1, le=10_000)]
ImageBatch = Annotated[int, setting("Images of a batch.", ge=1, le=1_000_000)]
LargestRate = Annotated[float, setting("Largest rate of AdamW's one cycle.", gt=0)]
WeightDecay = Annotated[float, setting("Decay of AdamW.", ge=0)]
LabelSmoothing = Annotated[float, setting("Share of a label that goes to all classes.", ge=0, lt=1)]


class Moved(Model):
    """How the images of a batch are moved, at random and anew in every epoch."""

    padding: int = setting("Largest shift of an image, in pixels.", ge=0, le=1000)
    flip: bool = setting("Whether half of the images are mirrored.")
