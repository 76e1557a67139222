"""The same ten tasks in four systems, one function for each. The lines of a function's body are counted for the docs.

What every system is given alike is here: documents, a frame of them, and a function from texts to vectors.
"""

import pandas

DOCUMENTS = [
    {"id": "budget", "text": "The budget was approved in March.", "year": 2021},
    {"id": "print", "text": "We stopped printing handbooks.", "year": 2019},
    {"id": "cats", "text": "Cats purr and hunt mice.", "year": 2022},
]
FRAME = pandas.DataFrame(DOCUMENTS)
TEXTS = [document["text"] for document in DOCUMENTS]
NEW = {"id": "budget", "text": "The budget was rejected in May.", "year": 2023}


def embed(texts: list[str]) -> list[list[float]]:
    return [[float(text.lower().count(letter)) for letter in "abcdefghiklmnoprstuvw"] for text in texts]
