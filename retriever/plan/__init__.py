"""What a corpus to come will need, told before it is embedded: `retriever plan`.

A sample of the corpus is rehearsed: the very code of `retriever index` makes a small collection of it, in a process of
its own, and what that costs is measured on this machine (rehearsal.py, index_trials.py, asking.py). The laws (laws.py)
carry these rates to the number of documents planned.
"""
