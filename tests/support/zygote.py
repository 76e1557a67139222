"""A process that has imported everything and forks a child for each job: a job then begins in milliseconds.

    python zygote.py ENCODER        reads one JSON object a line, {"job": NAME, "arguments": {...}, "held": BOOL}

It answers with one line a job: {"status": the child's exit status, "result": what the job returned or raised}. With
"held" it first answers {"pid": ...} and lets the child begin when it gets an empty line, so that a tracer can attach.
"""

import contextlib
import json
import os
import socket
import sqlite3
import sys
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))


def main() -> None:
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    import collection_jobs

    collection_jobs.warm(sys.argv[1])
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a job prints is no answer
    print(json.dumps({"ready": True}), file=answer, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        from_child, to_parent = socket.socketpair()  # writing to it is no call that a tracer counts
        from_parent, to_child = os.pipe()
        child = os.fork()
        if not child:
            from_child.close()
            os.close(to_child)
            os.read(from_parent, 1)
            _run(collection_jobs.JOBS[request["job"]], request["arguments"], to_parent)
        to_parent.close()
        os.close(from_parent)
        if request.get("held"):
            print(json.dumps({"pid": child}), file=answer, flush=True)
            sys.stdin.readline()
        with contextlib.suppress(BrokenPipeError):  # it was killed before it began
            os.write(to_child, b"x")
        os.close(to_child)
        with from_child, from_child.makefile("rb") as results:
            result = results.read()
        _, status = os.waitpid(child, 0)
        exit_code = os.waitstatus_to_exitcode(status)
        print(json.dumps({"status": exit_code, "result": json.loads(result or b"null")}), file=answer, flush=True)


def _run(job: Any, arguments: dict[str, Any], to_parent: socket.socket) -> None:
    from retriever.errors import RetrieverError

    try:
        result = {"returned": job(**arguments)}
    except BaseException as error:
        trace = traceback.format_exc(limit=-6)
        # What the command line turns into a sentence.
        told = isinstance(error, RetrieverError | OSError | sqlite3.DatabaseError | KeyboardInterrupt)
        result = {"raised": type(error).__name__, "message": str(error), "trace": trace, "told": told}
    to_parent.sendall(json.dumps(result).encode())
    os._exit(0)


if __name__ == "__main__":
    main()
