"""What the page's tests look at: documents with something to find, and the server as a process of its own."""

import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from retriever.corpus import Document

TOPICS: dict[str, list[tuple[str, str]]] = {
    "animals": [
        ("Cats", "Cats purr when they are content. They hunt mice at night and sleep through most of the day."),
        ("Dogs", "Dogs bark at strangers and wag their tails for friends. Many of them like to fetch sticks."),
        ("Goldfish", "Goldfish swim round and round in a bowl. They remember more than people think."),
        ("Owls", "Owls fly without a sound. They see well in the dark and swallow their prey whole."),
        ("Horses", "Horses gallop over the fields in the morning. They sleep standing."),
        ("Parrots", "Parrots can learn to speak a few words. They live for decades."),
        ("Whales", "Whales sing to each other over hundreds of miles. The blue whale is the largest animal."),
        ("Bees", "Bees dance to tell the hive where the flowers are. One queen lays all the eggs."),
    ],
    "kitchen": [
        ("Bread", "Knead flour, water, salt and yeast. Let the dough rise for an hour and bake it until it is brown."),
        ("Soup", "Simmer carrots, leeks and celery in broth. Season it with pepper and serve it hot."),
        ("Pancakes", "Whisk eggs, milk and flour to a thin batter. Fry it in butter on both sides."),
        ("Pickles", "Pack cucumbers into jars with dill. Pour hot vinegar over them and seal the lids."),
        ("Coffee", "Grind the beans just before brewing. Water a little below boiling tastes best."),
        ("Rice", "Rinse the rice until the water runs clear. Cover it and let it steam off the heat."),
        ("Omelette", "Beat three eggs with a fork. Stir them in a hot pan and fold them over cheese."),
        ("Jam", "Boil berries with as much sugar. It is done when a drop sets on a cold plate."),
    ],
    "sky": [
        ("Comets", "A comet grows a tail when it comes near the sun. The tail always points away from it."),
        ("The Moon", "The moon pulls the tides. It shows us the same face all the time."),
        ("Jupiter", "Jupiter is the largest planet. Its red spot is a storm that is older than telescopes."),
        ("Eclipses", "In an eclipse the moon covers the sun for a few minutes. Birds fall silent and stars come out."),
        ("Meteors", "Shooting stars are grains of dust that burn up in the air. Most are seen before dawn."),
        ("Saturn", "Saturn's rings are made of ice and rock. They are very wide and very thin."),
        ("Mars", "Mars is red because its dust has rusted. It has the highest mountain of all planets."),
        ("Galaxies", "A galaxy holds billions of stars. Ours can be seen as a pale band across the night."),
    ],
    "money": [
        ("Savings", "Put a part of every wage aside. Interest on interest makes small sums grow."),
        ("Taxes", "Taxes pay for roads and schools. The return is due in spring."),
        ("Insurance", "An insurance shares the losses of a few among many. Read what it does not cover."),
        ("Loans", "A loan costs interest every month. Paying it back early can save a lot."),
        ("Shares", "A share is a part of a company. Its price goes up and down with what people expect."),
        ("Budget", "Write down what comes in and what goes out. The budget was approved in March."),
        ("Rent", "Rent is due on the first of the month. The landlord keeps a deposit."),
        ("Pensions", "A pension is paid when one no longer works. Who starts early has more of it."),
    ],
}

LONG = " ".join(
    f"In the {word} chapter the keeper of the lighthouse writes about fog, gulls and the price of oil."
    for word in "first second third fourth fifth sixth seventh eighth ninth tenth".split()
)
HOSTILE_TEXT = (
    "<script>window.stolen = 'text'</script> A virus that steals passwords from browsers. "
    "<img src=x onerror=\"window.stolen = 'image'\"> It spreads by mail."
)
HOSTILE_TITLE = "<img src=x onerror=\"window.stolen = 'title'\"><script>window.stolen = 'title'</script>"
HOSTILE_ID = "evil/<svg onload=alert(1)>?#&'\""


def documents() -> list[Document]:
    """Four topics with metadata; a long one, one in emoji, and one that is an attack."""
    made: list[Document] = []
    for topic, texts in TOPICS.items():
        for number, (title, text) in enumerate(texts):
            metadata: dict[str, Any] = {"topic": topic, "year": 2015 + number, "length": len(text)}
            made.append(Document(f"{topic}/{number}", text, title, metadata, ""))
    emoji = "🦊🦊🦊 Foxes are clever. 🐇🐇🐇 They chase rabbits through the snow. 🌲🌲 Their dens are in the woods."
    made.append(Document("foxes", emoji, "Foxes 🦊", {"topic": "animals", "year": 2024, "tags": ["red", "sly"]}, ""))
    made.append(Document("lighthouse", LONG, "The lighthouse", {"topic": "books", "length": len(LONG)}, ""))
    evil = {"topic": "<b>bold</b>", "<script>window.stolen = 'field'</script>": "<i onclick=alert(1)>"}
    made.append(Document(HOSTILE_ID, HOSTILE_TEXT, HOSTILE_TITLE, evil, ""))
    return made


class Server:
    """`retriever serve` in a process of its own, which can be stopped and started again at the same port."""

    def __init__(self, folders: Sequence[Path], *options: str) -> None:
        self._folders = [str(folder) for folder in folders]
        self._options = options
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "retriever", "serve", *self._folders, "--port", str(self.port), *self._options]
        self._process = subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.DEVNULL)
        for _ in range(1200):
            assert self._process.poll() is None, f"the server ended with code {self._process.returncode}"
            try:
                with urllib.request.urlopen(f"{self.address}/ready", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        raise AssertionError("the server did not become ready")

    def stop(self) -> None:
        if self._process:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
