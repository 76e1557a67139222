"""A made-up corpus whose documents have topics, so that an encoder can learn something from it."""

import numpy as np

TOPICS = {
    "sea": "ship harbour captain wave sailor island storm anchor tide coast".split(),
    "kitchen": "oven bread butter recipe flour pan soup onion spoon salt".split(),
    "law": "court judge statute appeal lawyer verdict contract clause witness trial".split(),
    "garden": "rose soil seed spade hedge compost tulip bulb pruning shade".split(),
    "music": "violin chord melody tenor drum concert score tempo choir flute".split(),
}


def articles(count: int, seed: int = 0) -> list[str]:
    """Texts of three sentences, whose words are drawn from one of five topics."""
    rng = np.random.default_rng(seed)
    names = list(TOPICS)
    found = []
    for _ in range(count):
        words = TOPICS[names[rng.integers(len(names))]]
        parts = [" ".join(rng.choice(words, 4, replace=False)) for _ in range(3)]
        found.append(" ".join(f"The {part} of {rng.integers(1000)}." for part in parts))
    return found
