"""A child process that holds one contestant with its data, and measures when asked."""

from __future__ import annotations

import gc
import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from benchmarks import data
from benchmarks.contestants import Contestant
from benchmarks.memory import extra_megabytes
from benchmarks.tasks import Task


def first(task: Task) -> dict[str, float | None]:
    """The first run in a fresh process: its memory and error count, its time is the warm-up."""
    megabytes = extra_megabytes(task.seconds)
    return {"megabytes": megabytes if task.in_process else None, "error": task.error()}


def timed(task: Task) -> float:
    gc.collect()
    return task.seconds()


COMMANDS = {"first": first, "time": timed}


def serve(
    pipe: Connection, kind: type[Task], contestant: Contestant, place: Path | None, threads: int
) -> None:
    """Answer commands until told to stop; an exception is an answer too."""
    try:
        task = kind(contestant, data.load(place) if place else None)
        # After the estimator's imports: only libraries already loaded can be limited.
        with threadpool_limits(threads):
            pipe.send("ready")
            while (command := pipe.recv()) != "stop":
                pipe.send(COMMANDS[command](task))
    except EOFError:  # the parent has ended
        return
    except Exception as error:
        lines = str(error).splitlines() or [""]
        pipe.send(RuntimeError(f"{type(error).__name__}: {lines[0]}"))


class Worker:
    """The parent's end: spawned, not forked, so that every child starts fresh."""

    def __init__(self, *args: Any):
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, *args), daemon=True)
        self.process.start()
        theirs.close()  # or a child that dies would leave us waiting
        self._answer(None)

    def ask(self, command: str, timeout: float | None = None) -> Any:
        self.pipe.send(command)
        return self._answer(timeout)

    def _answer(self, timeout: float | None) -> Any:
        try:
            if not self.pipe.poll(timeout):
                raise TimeoutError
            answer = self.pipe.recv()  # EOFError when the child died
            if isinstance(answer, Exception):
                raise answer
        except BaseException:
            self.kill()
            raise
        return answer

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def stop(self) -> None:
        if self.process.is_alive():
            self.pipe.send("stop")
            self.process.join()
