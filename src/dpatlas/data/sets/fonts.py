"""fonts, letters, inverted-letters: digits and letters in free fonts."""

from dpatlas.data.definitions import Drawn
from dpatlas.data.generated import fonts, generated_set

DRAW_DIGITS, DRAW_LETTERS = fonts.drawer(fonts.DIGITS), fonts.drawer(fonts.LETTERS)
SETS = (
    generated_set("fonts", "digits in 16 free fonts", Drawn(fonts.DIGITS, DRAW_DIGITS)),
    generated_set("letters", "36 letters in 16 free fonts", Drawn(fonts.LETTERS, DRAW_LETTERS)),
    generated_set(
        "inverted-letters",
        "36 letters in 16 free fonts, paper on ink",
        Drawn(fonts.LETTERS, fonts.inverted(DRAW_LETTERS)),
        only_public=True,
    ),
)
