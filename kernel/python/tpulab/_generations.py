"""Names of TPU generations."""

from __future__ import annotations

#: Canonical names, oldest first, each with the other names it goes by (device kinds, accelerator types, code names).
GENERATIONS: dict[str, tuple[str, ...]] = {
    "v2": ("TPU v2",),
    "v3": ("TPU v3",),
    "v4": ("TPU v4",),
    "v5e": ("v5litepod", "v5lite", "TPU v5 lite"),
    "v5p": ("v5", "TPU v5", "TPU v5p"),
    "v6e": ("v6", "v6lite", "TPU v6 lite", "trillium"),
    "v7x": ("v7", "tpu7x", "TPU7x", "ironwood"),
}


def canonical(name: str) -> str:
    """The canonical name of a generation, as in "TPU v6 lite" → "v6e".

    Raises:
        ValueError: no generation goes by that name; the message lists those there are.
    """
    wanted = _plain(name)
    for generation, aliases in GENERATIONS.items():
        if wanted == _plain(generation) or wanted in map(_plain, aliases):
            return generation
    choices = ", ".join(GENERATIONS)
    raise ValueError(f"chip={name!r} is no TPU generation; take one of {choices}")


def _plain(name: str) -> str:
    plain = "".join(c for c in name.lower() if c.isalnum()).removeprefix("tpu")
    return f"v{plain}" if plain[:1].isdigit() else plain
