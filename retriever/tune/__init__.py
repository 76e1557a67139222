"""`retriever tune`: tunes an encoder on the text of a corpus, without labels.

corpus ─texts─▶ passages ─┬─▶ pairs ─training─▶ tuned encoder
                          └─▶ held-out passages ─evidence─▶ when to stop, which state to keep
"""
